-- Take tokens of rate limits, and plan when those that got none come again; never further ahead than is worth planning.
insert into holdfast.rate_limits as l (org_id, key, tokens, refilled_at, planned_until, rate, burst, asked, granted)
select u.org, u.key, u.burst - g.granted, n.now, n.now + (u.asked - g.granted) / u.rate * interval '1 second',
    u.rate, u.burst, u.asked, g.granted
from (
    select * from unnest($1::text[], $2::text[], $3::real[], $4::real[], $5::int[]) as x(org, key, rate, burst, asked)
    order by x.org, x.key
) u
cross join (select holdfast.clock() as now) n
cross join lateral (select least(u.asked, floor(u.burst))::int as granted) g
on conflict (org_id, key) do update
set (tokens, refilled_at, planned_until, rate, burst, asked, granted) = (
    select t.tokens - g.granted, greatest(l.refilled_at, excluded.refilled_at),
        t.free_from + (excluded.asked - g.granted) / excluded.rate * interval '1 second',
        excluded.rate, excluded.burst, excluded.asked, g.granted
    from (
        select least(excluded.burst, l.tokens + excluded.rate
                * greatest(0, extract(epoch from excluded.refilled_at - l.refilled_at))::double precision) as tokens,
            least(greatest(l.planned_until, excluded.refilled_at),
                excluded.refilled_at + $6::real * interval '1 second') as free_from
    ) t
    -- A turn comes at the very moment its token is full: what rounding takes off it must not send it away.
    cross join lateral (select least(excluded.asked, greatest(0, floor(t.tokens + 0.000001)))::int as granted) g
)
returning l.org_id, l.key, l.granted, (extract(epoch from l.planned_until - l.refilled_at) * 1000000)::bigint
