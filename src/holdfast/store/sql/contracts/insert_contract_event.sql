-- Write down who did what with a contract or a patch, and why.
insert into holdfast.contract_events (id, org_id, entity_type, action, version, origin, actor, reason, created_at)
values ($1::uuid, $2::text, $3::text, $4::text, $5::int, $6::int, $7::text, $8::text, holdfast.clock())
