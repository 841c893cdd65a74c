-- One line of the audit trail about an intervention.
insert into holdfast.events (instance_id, bucket, org_id, created_at, version, ordinal, type, actor, detail)
values ($1::uuid, $2::smallint, $3::text, $4::timestamptz, $5::bigint, holdfast.next_ordinal($1, $2, $5), $6::text, $7::text,
    $8::jsonb)
