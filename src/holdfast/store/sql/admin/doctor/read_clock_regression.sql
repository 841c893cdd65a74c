-- How far the clock is behind the latest moment it has itself recorded.
select extract(epoch from greatest(
    (select max(w.started_at) from holdfast.workers w), (select max(u.finished_at) from holdfast.upkeep u),
    (select max(r.finished_at) from holdfast.upkeep_runs r)) - holdfast.clock())::float8
