-- The last instances with an attribute, newest first; of those that fit, a page with all there is to know.
with seen as materialized (
    select n.id, n.bucket, n.fits
    from (
        select a.instance_id, a.bucket from holdfast.instance_attributes a
        where a.org_id = $1::text and a.name = $6::text and a.value = holdfast.attribute_value($7::jsonb)
            and a.instance_id < case when $2::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $2::uuid end
        order by a.instance_id desc limit $4::bigint
    ) a
    cross join lateral (
        select i.id, i.bucket,
            holdfast.fits($3::jsonb, i.status, i.flow, i.created_by, i.business_key, i.attributes, i.reason, i.last_error,
            i.error_step, i.state, i.created_at, i.completed_at) as fits
        from holdfast.instances i where i.id = a.instance_id and i.bucket = a.bucket
        limit 1
    ) n
), counted as (
    select s.id, s.bucket, s.fits, count(*) filter (where s.fits) over (order by s.id desc) as nth from seen s
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
order by c.id desc
