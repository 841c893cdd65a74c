-- Remove a page of receipts of instances that are long over.
select p.visited, p.removed, p.last from holdfast.prune_receipts($1::timestamptz, $2::uuid, $3::int) p
