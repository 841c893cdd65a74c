-- Insert pending instances, each with the signal that starts it; one whose idempotency key is taken is left out.
with n as (
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, input, idempotency_key, business_key,
        attributes, parent_id, parent_token, created_by, trace, data, status, version, state, created_at, updated_at)
    select u.*, case when jsonb_typeof(u.input) = 'object' then u.input else '{}' end, 'pending', 0, '{}',
        coalesce($15::timestamptz, (select holdfast.clock())), coalesce($15::timestamptz, (select holdfast.clock()))
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::jsonb[], $8::text[], $9::text[],
        $10::jsonb[], $11::uuid[], $12::text[], $13::text[], $14::text[])
        as u(id, bucket, org, definition, flow, flow_version, input, key, business_key, attributes, parent, parent_token,
            created_by, trace)
    on conflict do nothing
    returning id, bucket, org_id, trace, created_at
)
insert into holdfast.signals (instance_id, bucket, id, org_id, kind, payload, trace, ripe_at)
select n.id, n.bucket, n.id, n.org_id, 'started', '{}', n.trace, n.created_at from n
returning instance_id
