-- What is published for an organisation, newest version first.
select d.name, d.kind, d.version, d.status, d.hash, d.org_id, d.published_at
from holdfast.definitions d where d.org_id in ($1::text, '_system') order by d.name, d.version desc
