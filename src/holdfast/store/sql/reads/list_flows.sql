-- The flows an organisation may start: every version that was published, newest first.
select d.org_id, d.kind, d.name, d.version, d.status, d.hash, d.compiler_version, d.created_by, d.published_at
from holdfast.definitions d
where d.org_id in ($1::text, '_system') and ($2::text is null or d.name = $2::text)
    and d.kind in ('saga', 'steps', 'machine') and d.status <> 'draft'
order by d.name, d.org_id = '_system', d.version desc
