-- Write facts. The external reference comes from the instance, which alone knows it.
insert into holdfast.acks (instance_id, bucket, id, org_id, environment, definition, kind, type, mode, state, event, code,
    step_id, seq, ordinal, needs_ack, starts_at, ends_at, body, external_ref, created_at)
select u.instance, u.bucket, u.id, u.org, u.environment, u.definition, u.kind, u.type, u.mode, u.state, u.event, u.code, u.step,
    u.seq, u.ordinal, u.needs_ack, u.starts, u.ends,
    u.body || jsonb_build_object('external_ref', coalesce(i.business_key, i.id::text), 'ack_guid', u.id), coalesce(i.business_key, i.id::text),
    $20::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::uuid[], $14::bigint[], $15::smallint[], $16::boolean[], $17::timestamptz[],
    $18::timestamptz[], $19::jsonb[])
    as u(instance, bucket, id, org, environment, definition, kind, type, mode, state, event, code, step, seq, ordinal, needs_ack,
        starts, ends, body)
join holdfast.instances i on i.id = any(array[u.instance]) and i.bucket = u.bucket
