-- Notices of an organisation from an id on, oldest first.
select n.id, true, n.created_at, n.code, n.kind, n.message, n.instance_id, n.consumer, n.detail
from holdfast.notices n
where n.org_id = $1::text and n.id > $2::uuid
order by n.id limit $3::bigint
