-- A page of the patches of an organisation for one type, newest first.
select d.entity_type, d.version, d.status, (d.base_ref ->> 'envelope')::int, d.hash, d.created_by, d.published_at
from holdfast.definitions d
where d.org_id = $1::text and d.kind = 'org_patch' and d.name = $2::text and d.version < $3::int and d.status <> 'draft'
order by d.version desc
limit $4::int
