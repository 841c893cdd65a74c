-- Dead letters of steps and compensations that are out of calls.
insert into holdfast.dead_letters
    (id, bucket, org_id, instance_id, flow, step, source, envelope, reason, error, attempts, worker, created_at)
select u.id, u.bucket, u.org, u.instance, u.flow, u.node, u.source,
    jsonb_build_object('flow', u.flow, 'version', u.version, 'step', u.step, 'at', u.at, 'path', u.path, 'token', u.token,
        'node', u.node, 'type', u.kind, 'input', u.input),
    u.reason, u.error, u.calls, $19::uuid, $18::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::int[], $8::uuid[],
    $9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::text[], $14::jsonb[], $15::text[], $16::jsonb[], $17::int[])
    as u(instance, bucket, id, org, source, flow, version, step, at, path, token, node, kind, input, reason, error, calls)
