-- Write down who did what with a contract or a patch, and why.
insert into holdfast.contract_events (org_id, entity_type, action, version, origin, actor, reason, created_at)
values ($1::text, $2::text, $3::text, $4::int, $5::int, $6::text, $7::text, holdfast.clock())
