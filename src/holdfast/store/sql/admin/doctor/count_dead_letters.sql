-- How many dead letters are open, by organisation, counted no further than matters.
select x.org_id, count(*)
from (
    select d.org_id from holdfast.dead_letters d where d.resolved_at is null order by d.org_id, d.id limit $1::bigint
) x
group by x.org_id order by count(*) desc, x.org_id
