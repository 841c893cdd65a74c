-- One version of a flow, or its newest, as it was written and as it runs; an organisation's own comes first.
select d.org_id, d.kind, d.name, d.version, d.status, d.hash, d.compiler_version, d.created_by, d.published_at, d.source,
    d.compiled
from holdfast.definitions d
where d.org_id in ($1::text, '_system') and d.name = $2::text
    and d.kind in ('saga', 'steps', 'machine') and d.status <> 'draft'
    and (d.version = $3::int or ($3::int is null and d.status = 'published'))
order by d.org_id = '_system', d.version desc
limit 1
