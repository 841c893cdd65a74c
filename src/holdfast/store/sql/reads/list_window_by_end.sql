-- The instances that ended last, but those that completed; of those that fit, a page with all there is to know.
with edge as materialized (  -- the end of the last page; should that instance be gone, its id still says when it was made
    select coalesce(
        (select e.completed_at from holdfast.instances e
            where e.id = $2::uuid and e.bucket = get_byte(uuid_send($2::uuid), 15)),
        to_timestamp(('x' || translate(left($2::uuid::text, 13), '-', ''))::bit(48)::bigint / 1000.0),
        'infinity') as completed_at
), seen as materialized (
    select n.* from edge
    cross join lateral (
        select i.id, i.bucket, i.completed_at,
            holdfast.fits($3::jsonb, i.status, i.flow, i.created_by, i.business_key, i.attributes, i.reason, i.last_error,
            i.error_step, i.state, i.created_at, i.completed_at) as fits
        from holdfast.instances i
        where i.org_id = $1::text and i.status <> 'completed' and i.completed_at >= $6::timestamptz
            and i.completed_at < $7::timestamptz
            and (i.completed_at, i.id) < (edge.completed_at, coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        order by i.completed_at desc, i.id desc limit $4::bigint
    ) n
), counted as (
    select s.id, s.bucket, s.fits, s.completed_at,
        count(*) filter (where s.fits) over (order by s.completed_at desc, s.id desc) as nth
    from seen s
)
select c.id, t.id, t.org_id, t.flow, t.flow_version, t.status, t.reason, t.version, t.data, t.input, t.idempotency_key,
    t.business_key, t.parent_id, t.waiting_kind, t.waiting_until, t.last_error, t.created_by, t.created_at, t.updated_at,
    t.completed_at, t.attributes, t.definition_id, t.state
from counted c
left join lateral (
    select i.* from holdfast.instances i
    where i.id = c.id and i.bucket = c.bucket and c.fits and c.nth <= $5::bigint
    limit 1
) t on true
order by c.completed_at desc, c.id desc
