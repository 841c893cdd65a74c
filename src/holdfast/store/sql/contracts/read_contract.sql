-- One version of a contract, or its newest; an organisation's own comes before the system's.
select d.org_id, d.entity_type, d.version, d.hash, d.compiler_version, d.created_by, d.published_at, d.source
from holdfast.definitions d
where d.org_id in ($1::text, '_system') and d.kind = 'envelope' and d.name = $2::text
    and ($3::int is null or d.version = $3::int) and d.status = 'published'
order by d.org_id = '_system', d.version desc
limit 1
