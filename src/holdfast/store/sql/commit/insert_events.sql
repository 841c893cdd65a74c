-- Append to the audit trail.
insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, node, token, actor, detail, created_at)
select u.*, $11::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::smallint[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::jsonb[])
    as u(instance, bucket, org, version, ordinal, type, node, token, actor, detail)
