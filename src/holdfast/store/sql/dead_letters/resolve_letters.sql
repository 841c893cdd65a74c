-- The dead letters about these steps are settled, by whom and why; one that was let go of before stays as it is.
update holdfast.dead_letters t
set resolved_at = $7::timestamptz, resolution = u.resolution, resolved_by = u.actor, resolved_why = u.why
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[])
    as u(instance, bucket, step, resolution, actor, why)
where t.instance_id = any(array[u.instance]) and t.bucket is not distinct from u.bucket and num_nulls(t.resolved_at) = 1
    and t.source = any(array['step', 'compensation']) and (t.envelope ->> 'step')::uuid = u.step
