-- The organisations that have a patch of a type in force.
select distinct d.org_id
from holdfast.definitions d
where d.kind = 'org_patch' and d.name = $1::text and d.status = 'published'
order by d.org_id
