-- How many notices of errors there are from within the last hour, by code and organisation, counted no further than matters.
select x.code, x.org_id, count(*)
from (
    select n.code, n.org_id from holdfast.notices n
    where n.id >= rpad(lpad(
        to_hex((extract(epoch from (select holdfast.clock())) * 1000)::bigint - 3600000), 12, '0'), 32, '0')::uuid
        and n.kind = 'error'
    limit $1::bigint
) x
group by x.code, x.org_id order by count(*) desc, x.code, x.org_id
