-- A page of what was done with the contracts and patches of a type, the last first.
select e.id, e.entity_type, e.action, e.version, e.origin, e.actor, e.reason, e.created_at
from holdfast.contract_events e
where e.org_id = $1::text and e.entity_type = $2::text and e.id < $3::bigint
order by e.id desc
limit $4::int
