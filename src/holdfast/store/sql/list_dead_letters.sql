-- A page of open dead letters of an organisation, newest first.
select t.id, t.instance_id, t.source, t.reason, t.envelope, t.error, t.attempts, t.worker, t.created_at, t.resolved_at,
    t.resolution, t.resolved_by, t.resolved_why
from holdfast.dead_letters t
where t.org_id = $1::text and t.resolved_at is null and ($2::text is null or t.reason = $2::text)
    and ($3::text is null or t.source = $3::text)
    and t.id < case when $4::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $4::uuid end
order by t.id desc limit $5::bigint
