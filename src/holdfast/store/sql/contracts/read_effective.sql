-- One graph that documents of a type run by, or the one in force; an organisation's own comes before the system's.
select d.org_id, d.entity_type, d.version, d.status, d.is_default, d.base_ref, d.created_by, d.published_at, d.hash, d.compiled
from holdfast.definitions d
where d.org_id in ($1::text, '_system') and d.kind = 'effective' and d.name = $2::text and d.status <> 'draft'
    and (d.version = $3::int or ($3::int is null and d.status = 'published'))
order by d.org_id = '_system', d.version desc
limit 1
