-- A page of the versions of one flow, newest first, an organisation's own before those that all may start.
-- Each kind is a walk along the key that ends with the page.
select t.org_id, t.kind, t.name, t.version, t.status, t.hash, t.compiler_version, t.created_by, t.published_at
from unnest(array[$1::text, '_system']) with ordinality as o(org_id, nth)
cross join unnest(array['saga', 'steps', 'machine']) as k(kind)
cross join lateral (
    select d.* from holdfast.definitions d
    where d.org_id = o.org_id and d.kind = k.kind and d.name = $2::text and d.status <> 'draft'
        and d.version <= case
            when (o.org_id = '_system') > $3::boolean then 2147483647
            when (o.org_id = '_system') < $3::boolean then 0
            when k.kind > $5::text then $4::int
            else $4::int - 1
        end
    order by d.version desc limit $6::bigint
) t
where o.nth = 1 or $1::text <> '_system'
order by t.org_id = '_system', t.version desc, t.kind limit $6::bigint
