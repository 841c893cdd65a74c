-- As start_instances, where no key is given and nobody can have stored the ids before: there is nothing to look for.
with u as materialized (
    select u.*, (select holdfast.clock()) as now
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::jsonb[], $8::text[], $9::jsonb[],
        $10::text[], $11::text[])
        as u(id, bucket, org, definition, flow, flow_version, input, business_key, attributes, created_by, trace)
), n as (
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, input, business_key, attributes,
        created_by, trace, data, status, version, state, created_at, updated_at)
    select u.id, u.bucket, u.org, u.definition, u.flow, u.flow_version, u.input, u.business_key, u.attributes, u.created_by,
        u.trace, case when jsonb_typeof(u.input) = 'object' then u.input else '{}' end, 'pending', 0, '{}', u.now, u.now
    from u
)
insert into holdfast.signals (instance_id, bucket, id, org_id, kind, payload, trace, ripe_at)
select u.id, u.bucket, u.id, u.org, 'started', '{}', u.trace, u.now from u
