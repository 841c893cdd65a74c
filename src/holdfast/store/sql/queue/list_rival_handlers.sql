-- Which of these handlers another live worker offers from elsewhere, under a name that steps are queued by.
select o.name, o.origin, min(o.host), min(o.pid)
from (
    select n.name, n.mine, t.origins ->> n.name as origin, t.host, t.pid
    from holdfast.workers t cross join jsonb_each_text($1::jsonb) as n(name, mine)
    where t.lease_until > clock_timestamp() and t.stopped_at is null and t.origins ? n.name
) o
where o.origin <> o.mine and (position('/' in o.name) > 0
    or exists (select from holdfast.definitions d where d.status = 'published' and d.shared @> array[o.name]))
group by o.name, o.origin order by o.name, o.origin limit 100
