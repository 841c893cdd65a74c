-- Insert instances that are started and decided upon in the same commit.
insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, reason, version, state, data,
    input, business_key, attributes, created_by, trace, waiting_kind, waiting_until, last_error, completed_at,
    error_step, created_at, updated_at, last_by, error_code)
select u.*, $22::timestamptz, $22::timestamptz, $23::uuid, left(u.last_error ->> 'code', 200)
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::text[], $8::text[], $9::bigint[],
    $10::jsonb[], $11::jsonb[], $12::jsonb[], $13::text[], $14::jsonb[], $15::text[], $16::text[], $17::text[],
    $18::timestamptz[], $19::jsonb[], $20::timestamptz[], $21::text[])
    as u(id, bucket, org, definition, flow, flow_version, status, reason, version, state, data, input, business_key,
        attributes, created_by, trace, waiting_kind, waiting_until, last_error, completed_at, error_step)
