-- The last open dead letters of all organisations, newest first, with the process that gave up while it is remembered.
with recursive orgs as (
    (select d.org_id from holdfast.dead_letters d where d.resolved_at is null order by d.org_id limit 1)
    union all
    select (select d.org_id from holdfast.dead_letters d where d.resolved_at is null and d.org_id > o.org_id
        order by d.org_id limit 1)
    from orgs o where o.org_id is not null
)
select x.org_id, w.host, w.pid, x.id, x.instance_id, x.flow, x.step, x.source, x.reason, x.envelope, x.error, x.attempts,
    x.worker, x.created_at
from orgs o
cross join lateral (
    select d.* from holdfast.dead_letters d
    where d.org_id = o.org_id and d.resolved_at is null
        and d.id < case when $2::uuid is null then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else $2::uuid end
        and holdfast.letter_fits($1::jsonb, d.flow, d.step, d.source, d.reason, d.error, d.envelope, d.created_at)
        and ($4::uuid is null or d.instance_id = $4::uuid)
    order by d.id desc limit $3::bigint
) x
left join holdfast.workers w on w.id = x.worker
order by x.id desc limit $3::bigint
