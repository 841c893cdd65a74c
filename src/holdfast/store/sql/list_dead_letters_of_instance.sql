-- The open dead letters of one instance, newest first.
select t.id, t.instance_id, t.source, t.reason, t.envelope, t.error, t.attempts, t.worker, t.created_at, t.resolved_at,
    t.resolution, t.resolved_by, t.resolved_why
from (
    select d.* from holdfast.dead_letters d
    where d.instance_id = $6::uuid and d.org_id is not distinct from $1::text and num_nulls(d.resolved_at) = 1
    offset 0
) t
where ($2::text is null or t.reason = $2::text) and ($3::text is null or t.source = $3::text)
    and t.id < case when $4::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $4::uuid end
order by t.id desc limit $5::bigint
