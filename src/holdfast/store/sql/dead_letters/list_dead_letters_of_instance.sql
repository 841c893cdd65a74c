-- The open dead letters of one instance, newest first; of those that fit, a page with all there is to know.
with seen as materialized (
    select d.id, d.bucket, holdfast.letter_fits($3::jsonb, d.flow, d.step, d.source, d.reason, d.error, d.envelope, d.created_at) as fits
    from (
        select o.* from holdfast.dead_letters o
        where o.instance_id = $6::uuid and o.org_id is not distinct from $1::text and num_nulls(o.resolved_at) = 1
        offset 0
    ) d
    where d.id < case when $2::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $2::uuid end
    order by d.id desc limit $4::bigint
), counted as (
    select s.id, s.bucket, s.fits, count(*) filter (where s.fits) over (order by s.id desc) as nth from seen s
)
select c.id, t.id, t.instance_id, t.flow, t.step, t.source, t.reason, t.envelope, t.error, t.attempts, t.worker, t.created_at,
    t.resolved_at, t.resolution, t.resolved_by, t.resolved_why
from counted c
left join lateral (
    select d.* from holdfast.dead_letters d
    where d.id = c.id and d.bucket = c.bucket and c.fits and c.nth <= $5::bigint
    limit 1
) t on true
order by c.id desc
