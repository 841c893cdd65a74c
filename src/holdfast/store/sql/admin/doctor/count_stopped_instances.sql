-- Instances that stand still or failed lately, by organisation, flow and reason, looking at no more of each than matters.
select x.status, x.org_id, x.flow, count(*), coalesce(min(x.reason), min(x.error_code), 'no reason given'), min(x.id::text)
from unnest(array['suspended', 'dlq', 'failed']) s(status)
cross join lateral (
    select i.status, i.org_id, i.flow, i.reason, i.error_code, i.id from holdfast.instances i
    where i.status in ('failed', 'suspended', 'dlq') and i.status = s.status
        and (s.status <> 'failed' or i.completed_at > (select holdfast.clock()) - $1::float8 * interval '1 second')
    order by i.completed_at desc limit $2::bigint
) x
group by x.status, x.org_id, x.flow, coalesce(x.reason, x.error_code)
order by count(*) desc, x.status, x.org_id, x.flow limit 20
