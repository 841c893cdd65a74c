-- Start an instance that begins at a step of one that is over: same flow, version and business key, an id of its own.
with n as (
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, input, business_key, attributes,
        created_by, data, status, version, state, created_at, updated_at)
    select $1::uuid, $2::smallint, t.org_id, t.definition_id, t.flow, t.flow_version, $5::jsonb, t.business_key,
        t.attributes, $6::text, case when jsonb_typeof($5::jsonb) = 'object' then $5::jsonb else '{}' end, 'pending', 0,
        jsonb_build_object('started', $7::jsonb), $8::timestamptz, $8::timestamptz
    from holdfast.instances t where t.id = $3::uuid and t.bucket = $4::smallint
    returning id, bucket, org_id
)
insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
select n.id, n.id, n.bucket, n.org_id, 'started', $7::jsonb, $8::timestamptz from n
returning instance_id
