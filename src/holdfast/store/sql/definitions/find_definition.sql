-- The definition a start means: a version by number, or the newest published one; an organisation's own comes first.
select d.id, d.org_id, d.kind, d.version, d.status, d.compiled, d.hash, d.compiler_version, d.apps
from holdfast.definitions d
where d.org_id in ($1::text, '_system') and d.name = $2::text and d.kind in ('saga', 'steps', 'machine', 'effective')
    and (d.version = $3::int or ($3::int is null and d.status = 'published'))
order by d.org_id = '_system', d.version desc
limit 1
