-- A page of the machines of an organisation, by name, each in the version that a new instance would take.
-- From name to name along the key, so that older versions cost nothing.
with recursive names as (
    select $3::text as name
    union all
    select (
        select min(d.name)
        from unnest(array[$1::text, '_system']) as o(org_id)
        cross join lateral (
            select f.name from holdfast.definitions f
            where f.org_id = o.org_id and f.kind = 'machine' and f.name > n.name and f.status = 'published'
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
    cross join lateral (
        select f.* from holdfast.definitions f
        where f.org_id = o.org_id and f.kind = 'machine' and f.name = n.name and f.status = 'published'
        order by f.version desc limit 1
    ) d
    order by d.org_id = '_system', d.version desc limit 1
) t
where n.name > $3::text and ($2::text is null or starts_with(n.name, $2::text || '.'))
limit $4::bigint
