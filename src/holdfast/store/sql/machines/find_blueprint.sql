-- The newest effective version of a blueprint: the organisation's own, else that of the system.
select v.version
from unnest(array[$1::text, '_system']) with ordinality o(org, place)
cross join lateral (
    select d.version from holdfast.definitions d
    where d.org_id = any(array[o.org]) and d.name = $2::text and d.kind = 'machine' and d.status = 'published'
        and (d.compiled #>> '{config,blueprint}')::int = $3::int
    order by d.version desc
    limit 1
) v
order by o.place
limit 1
