-- Insert pending instances; one whose idempotency key is taken is left out.
insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, data, input, idempotency_key,
    business_key, attributes, parent_id, parent_token, created_by, trace, status, version, state, created_at, updated_at)
select u.*, 'pending', 0, '{}', coalesce($16::timestamptz, (select holdfast.clock())), coalesce($16::timestamptz, (select holdfast.clock()))
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::jsonb[], $8::jsonb[], $9::text[],
    $10::text[], $11::jsonb[], $12::uuid[], $13::text[], $14::text[], $15::text[])
    as u(id, bucket, org, definition, flow, flow_version, data, input, key, business_key, attributes, parent, parent_token,
        created_by, trace)
on conflict do nothing
returning id
