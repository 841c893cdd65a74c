-- Remove receipts of what these instances passed before they were carried; those of signals once their window is over.
select holdfast.prune_passed_receipts($1::uuid[], holdfast.clock() - $2::float8 * interval '1 second', $3::int)
