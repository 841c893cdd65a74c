-- The last notices of an organisation, newest first: all that were looked at, with those that fit.
with seen as materialized (
    select n.id, n.created_at, n.code, n.kind, n.message, n.instance_id, n.consumer, n.detail,
        ($4::text is null or n.code = $4::text) and ($5::text is null or n.kind = $5::text)
            and ($6::text is null or n.consumer is not distinct from $6::text) as fits
    from holdfast.notices n
    where n.org_id = $1::text
        and n.id < case when $2::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $2::uuid end
        and n.id >= case when $3::uuid is null then '00000000-0000-0000-0000-000000000000' else $3::uuid end
    order by n.id desc limit $7::bigint
)
select s.id, s.fits, s.created_at, s.code, s.kind, case when s.fits then s.message end, s.instance_id, s.consumer,
    case when s.fits then s.detail end
from seen s
order by s.id desc
