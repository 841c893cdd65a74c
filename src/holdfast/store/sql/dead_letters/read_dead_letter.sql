-- One dead letter, whether it is open or not.
select t.id, t.instance_id, t.flow, t.step, t.source, t.reason, t.envelope, t.error, t.attempts, t.worker, t.created_at,
    t.resolved_at, t.resolution, t.resolved_by, t.resolved_why
from holdfast.dead_letters t where t.id = $1::uuid and t.org_id is not distinct from $2::text
