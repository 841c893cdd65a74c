-- Remove a page of instances that are long over, with everything that belongs to them.
select p.visited, p.removed, p.last from holdfast.purge_instances($1::timestamptz, $2::uuid, $3::int) p
