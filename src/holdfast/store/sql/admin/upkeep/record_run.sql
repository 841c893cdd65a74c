-- Keep what a run of a task did.
insert into holdfast.upkeep_runs (id, task, runner, started_at, finished_at, result, error)
values ($1::uuid, $2::text, $3::text, $4::timestamptz, holdfast.clock(), $5::jsonb, $6::text)
