-- Unfinished instances of these organisations that nothing will move any more, and what each of them misses.
select x.id, x.flow, x.status, x.version, x.updated_at, x.last_error, x.missing, x.org_id
from unnest($1::text[]) o(org)
cross join unnest(array['pending', 'running', 'rolling_back']) s(status)
cross join lateral (
    select t.id, t.flow, t.status, t.version, t.updated_at, t.last_error, m.missing, t.org_id
    from holdfast.instances t
    cross join lateral (
        -- offset 0: only what is old enough is worth the look
        select holdfast.missing_movers(t.id, t.bucket, t.version, t.state) as missing offset 0
    ) m
    where t.org_id = o.org and t.status = s.status and t.status <> 'completed'
        and t.id > case when $3::uuid is null then '00000000-0000-0000-0000-000000000000' else $3::uuid end
        and t.updated_at < (select holdfast.clock()) - $2::float8 * interval '1 second'
        and m.missing <> '[]'
    order by t.id limit $4::bigint
) x
order by x.id limit $4::bigint
