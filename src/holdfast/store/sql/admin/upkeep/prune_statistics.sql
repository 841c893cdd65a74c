-- Remove sums of hours that are long over.
select holdfast.prune_statistics($1::timestamptz, $2::int)
