-- A page of what was done with the contracts and patches of a type, the last first.
select e.id, e.entity_type, e.action, e.version, e.origin, e.actor, e.reason, e.created_at
from holdfast.contract_events e
where e.org_id = $1::text and e.entity_type = $2::text and ($3::uuid is null or (e.created_at, e.id) < (
    select p.created_at, p.id from holdfast.contract_events p where p.id = $3::uuid and p.org_id = $1::text))
order by e.created_at desc, e.id desc
limit $4::int
