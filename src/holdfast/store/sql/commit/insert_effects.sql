-- Write side effects to the outbox, in the same commit as the step that wants them.
insert into holdfast.effects (instance_id, bucket, id, org_id, step_id, token, effect_type, payload, key, awaited, trace,
    step_created_at, max_attempts, target, next_attempt_at, created_at)
select u.*, $12::timestamptz, holdfast.effect_attempts(u.payload), holdfast.effect_target(u.payload), $12::timestamptz,
    $12::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::jsonb[], $9::text[],
    $10::boolean[], $11::text[])
    as u(instance, bucket, id, org, step, token, type, payload, key, awaited, trace)
