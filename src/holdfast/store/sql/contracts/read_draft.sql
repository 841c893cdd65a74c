-- The draft of an organisation for one type.
select d.entity_type, d.tag, d.patch, d.saved_by, d.saved_at, d.reason
from holdfast.contract_drafts d
where d.org_id = $1::text and d.entity_type = $2::text
