-- Remove dead letters that were resolved long ago.
select holdfast.prune_dead_letters($1::timestamptz, $2::int)
