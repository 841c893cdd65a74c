-- One effect, whatever its status. Its id says in which millisecond, and so in which month, it was made.
with born as materialized (
    select to_timestamp(('x' || translate(left($1::uuid::text, 13), '-', ''))::bit(48)::bigint / 1000.0) as at
)
select t.id, t.instance_id, t.token, t.effect_type, t.target, t.key, t.awaited, t.status, t.attempts, t.max_attempts,
    t.next_attempt_at, t.payload, t.evidence, t.error, t.created_at, t.completed_at
from born
cross join unnest(array['pending', 'processing', 'failed', 'completed', 'dead_letter']) as u(status)
cross join lateral (
    select e.* from holdfast.effects e
    where e.org_id = $2::text and e.status = u.status and e.id = $1::uuid
        and e.created_at >= born.at - interval '1 second' and e.created_at < born.at + interval '1 second'
    limit 1
) t
