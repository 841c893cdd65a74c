-- The last open dead letters with the code of an error, newest first; of those that fit, a page with all there is to know.
with edge as materialized (  -- the end of the last page; should that letter be gone, its id still says when it was made
    select coalesce(
        (select e.created_at from holdfast.dead_letters e
            where e.id = $2::uuid and e.bucket = get_byte(uuid_send($2::uuid), 15)),
        to_timestamp(('x' || translate(left($2::uuid::text, 13), '-', ''))::bit(48)::bigint / 1000.0),
        'infinity') as created_at
), seen as materialized (
    select n.* from edge
    cross join lateral (
        select d.id, d.bucket, d.created_at,
            holdfast.letter_fits($3::jsonb, d.flow, d.step, d.source, d.reason, d.error, d.envelope, d.created_at) as fits
        from holdfast.dead_letters d
        where d.org_id = $1::text and num_nonnulls(d.resolved_at) = 0 and d.error_code = left($7::text, 200)
            and d.created_at >= $6::timestamptz
            and (d.created_at, d.id) < (edge.created_at, coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        order by d.created_at desc, d.id desc limit $4::bigint
    ) n
), counted as (
    select s.id, s.bucket, s.fits, s.created_at,
        count(*) filter (where s.fits) over (order by s.created_at desc, s.id desc) as nth
    from seen s
)
select c.id, t.id, t.instance_id, t.flow, t.step, t.source, t.reason, t.envelope, t.error, t.attempts, t.worker, t.created_at,
    t.resolved_at, t.resolution, t.resolved_by, t.resolved_why
from counted c
left join lateral (
    select d.* from holdfast.dead_letters d
    where d.id = c.id and d.bucket = c.bucket and c.fits and c.nth <= $5::bigint
    limit 1
) t on true
order by c.created_at desc, c.id desc
