-- One published patch of an organisation, or the one in force.
select d.entity_type, d.version, d.status, (d.base_ref ->> 'envelope')::int, d.hash, d.created_by, d.published_at, d.source
from holdfast.definitions d
where d.org_id = $1::text and d.kind = 'org_patch' and d.name = $2::text and d.status <> 'draft'
    and (d.version = $3::int or ($3::int is null and d.status = 'published'))
order by d.version desc
limit 1
