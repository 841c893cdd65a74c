-- A page of the contracts an organisation has, by type, each in its newest version.
select distinct on (d.entity_type) d.org_id, d.entity_type, d.version, d.hash, d.compiler_version, d.created_by, d.published_at
from holdfast.definitions d
where d.org_id in ($1::text, '_system') and d.kind = 'envelope' and d.entity_type > $2::text and d.status = 'published'
order by d.entity_type, d.org_id = '_system', d.version desc
limit $3::int
