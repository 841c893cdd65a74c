-- How many notices of errors there are from within the last hour, by code and organisation, counted no further than matters.
select x.code, x.org_id, count(*)
from (
    select n.code, n.org_id from holdfast.notices n
    where n.created_at >= (select holdfast.clock()) - interval '1 hour'
        and n.kind = 'error'
    limit $1::bigint
) x
group by x.code, x.org_id order by count(*) desc, x.code, x.org_id
