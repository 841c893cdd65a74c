-- The last effects of an organisation in some statuses, newest first; of those that fit, a page with all there is to know.
with seen as materialized (
    select n.id, n.instance_id, n.created_at, n.bucket,
        ($4::text is null or n.effect_type = $4::text) and ($5::text is null or $5::text = (
            select i.flow from holdfast.instances i where i.id = n.instance_id and i.bucket = n.bucket)) as fits
    from unnest($1::text[]) as u(status)
    cross join lateral (
        select e.id, e.instance_id, e.created_at, e.bucket, e.effect_type from holdfast.effects e
        where e.org_id = $2::text and e.status = u.status
            and e.id < case when $3::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $3::uuid end
        order by e.id desc limit $6::bigint
    ) n
    order by n.id desc limit $6::bigint
), counted as (
    select s.*, count(*) filter (where s.fits) over (order by s.id desc) as nth from seen s
)
select c.id, t.id, t.instance_id, t.token, t.effect_type, t.target, t.key, t.awaited, t.status, t.attempts, t.max_attempts,
    t.next_attempt_at, t.payload, t.evidence, t.error, t.created_at, t.completed_at
from counted c
left join lateral (
    select e.* from holdfast.effects e
    where e.instance_id = c.instance_id and e.created_at = c.created_at and e.id = c.id and e.bucket = c.bucket
        and c.fits and c.nth <= $7::bigint
    limit 1
) t on true
order by c.id desc
