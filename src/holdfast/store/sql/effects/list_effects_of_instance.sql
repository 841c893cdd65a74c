-- The effects of one instance, oldest first, or a page of them.
select t.id, t.instance_id, t.token, t.effect_type, t.target, t.key, t.awaited, t.status, t.attempts, t.max_attempts,
    t.next_attempt_at, t.payload, t.evidence, t.error, t.created_at, t.completed_at
from holdfast.effects t where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
    and t.created_at >= $4::timestamptz and (t.created_at, t.id) > ($4::timestamptz, $5::uuid)
order by t.created_at, t.id limit $6::bigint
