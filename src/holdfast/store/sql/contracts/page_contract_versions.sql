-- A page of the versions of one contract, newest first; those of the system only where no version of one's own hides them.
select d.org_id, d.entity_type, d.version, d.hash, d.compiler_version, d.created_by, d.published_at
from holdfast.definitions d
where d.org_id in ($1::text, '_system') and d.kind = 'envelope' and d.name = $2::text and d.version < $3::int
    and d.status = 'published'
    and (d.org_id = $1::text or not exists (
        select from holdfast.definitions o
        where o.org_id = $1::text and o.kind = 'envelope' and o.name = $2::text and o.version = d.version))
order by d.version desc
limit $4::int
