-- Handlers that live workers offer from different origins, under a name that steps are queued by.
with offered as (
    select n.name, n.origin, min(format('%s, pid %s on %s', n.origin, t.pid, t.host)) as place
    from holdfast.workers t cross join lateral jsonb_each_text(t.origins) as n(name, origin)
    where t.lease_until > clock_timestamp() and t.stopped_at is null
    group by n.name, n.origin
), rivals as (
    select o.name, string_agg(o.place, ' and ' order by o.origin) as places from offered o
    group by o.name having count(*) > 1 order by o.name limit 100
)
select r.name, r.places from rivals r
where position('/' in r.name) > 0
    or exists (select from holdfast.definitions d where d.status = 'published' and d.shared @> array[r.name])
