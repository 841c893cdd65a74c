-- A page of the flows an organisation may start, by name, each in the version that a start would take.
-- From name to name along the key, so that older versions cost nothing.
with recursive names as (
    select $2::text as name
    union all
    select (
        select min(d.name)
        from unnest(array[$1::text, '_system']) as o(org_id)
        cross join unnest(array['saga', 'steps', 'machine']) as k(kind)
        cross join lateral (
            select f.name from holdfast.definitions f
            where f.org_id = o.org_id and f.kind = k.kind and f.name > n.name and f.status = 'published'
            order by f.name limit 1
        ) d
    )
    from names n
    where n.name is not null
)
select t.org_id, t.kind, t.name, t.version, t.status, t.hash, t.compiler_version, t.created_by, t.published_at
from names n
cross join lateral (
    select d.*
    from unnest(array[$1::text, '_system']) as o(org_id)
    cross join unnest(array['saga', 'steps', 'machine']) as k(kind)
    cross join lateral (
        select f.* from holdfast.definitions f
        where f.org_id = o.org_id and f.kind = k.kind and f.name = n.name and f.status = 'published'
        order by f.version desc limit 1
    ) d
    order by d.org_id = '_system', d.version desc, d.kind limit 1
) t
where n.name > $2::text
limit $3::bigint
