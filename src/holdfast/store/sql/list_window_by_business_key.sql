-- The last instances with a business key, newest first; of those that fit, a page with all there is to know.
with seen as materialized (
    select i.id, i.bucket,
        (cardinality($1::text[]) = 0 or i.status = any($1::text[])) and ($4::text is null or i.flow = $4::text)
            and ($5::text is null or i.created_by = $5::text) and ($6::text is null or i.business_key = $6::text)
            and ($7::jsonb is null or i.attributes @> $7::jsonb) as fits
    from holdfast.instances i
    where i.org_id = $2::text and i.business_key = $6::text
        and i.id < case when $3::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $3::uuid end
    order by i.id desc limit $8::bigint
), counted as (
    select s.id, s.bucket, s.fits, count(*) filter (where s.fits) over (order by s.id desc) as nth from seen s
)
select c.id, t.id, t.org_id, t.flow, t.flow_version, t.status, t.reason, t.version, t.data, t.input, t.idempotency_key,
    t.business_key, t.parent_id, t.waiting_kind, t.waiting_until, t.last_error, t.created_by, t.created_at, t.updated_at,
    t.completed_at, t.attributes, t.definition_id, t.state
from counted c
left join lateral (
    select i.* from holdfast.instances i
    where i.id = c.id and i.bucket = c.bucket and c.fits and c.nth <= $9::bigint
    limit 1
) t on true
order by c.id desc
