-- Lease due effects of targets that have room left, and count the attempt before anything is delivered.
with room as materialized (
    select u.kind, u.target, u.most - (
        select count(*) from holdfast.effects p
        where p.effect_type = u.kind and p.target = u.target and p.status = 'processing'
    ) as free, string_to_array(u.passed, E'\n') as passed
    from unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) as u(kind, target, most, passed)
), due as materialized (
    select e.instance_id, e.created_at, e.id, e.bucket
    from room r
    cross join lateral (
        select t.instance_id, t.created_at, t.id, t.bucket from holdfast.effects t
        where t.effect_type = r.kind and t.target = r.target and t.status in ('pending', 'failed')
            and t.next_attempt_at <= (select holdfast.clock()) and t.org_id <> all(r.passed)
        order by t.next_attempt_at limit greatest(least(r.free, $8::bigint), 0)
        for update skip locked
    ) e
    limit $5::bigint
)
update holdfast.effects t set status = 'processing', attempts = t.attempts + 1, fence = t.fence + 1,
    worker = $6::uuid, deadline_at = (select holdfast.clock())
        + (coalesce((t.payload ->> 'timeout')::float8, $7::bigint) + 30) * interval '1 second'
from due d
where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.id = d.id and t.bucket = d.bucket
returning t.instance_id, t.created_at, t.id, t.fence, t.org_id, t.token, t.effect_type, t.target, t.payload, t.key,
    t.attempts, t.max_attempts, t.trace
