-- The worker processes that are alive or were until lately, newest first.
select t.id, t.host, t.pid, t.version, to_jsonb(t.queues), t.started_at, t.lease_until, t.stopped_at,
    t.stopped_at is null and t.lease_until > clock_timestamp()
from holdfast.workers t order by t.started_at desc, t.id limit $1::bigint
