-- The sums of some hours and what is not folded yet, for one flow or all: one short index scan per hour.
select x.flow, x.flow_version, x.node, x.outcome, x.bar, sum(x.count)::bigint, sum(x.total)::bigint, min(x.least), max(x.most)
from (
    select s.flow, s.flow_version, s.node, s.outcome, s.bar, s.count, s.total, s.least, s.most
    from (
        select
            (select f.hour from holdfast.statistics f
                where f.org_id = $1::text and f.hour > '-infinity' order by f.org_id, f.hour limit 1) as first,
            (select l.hour from holdfast.statistics l
                where l.org_id = $1::text and l.hour > '-infinity' order by l.org_id desc, l.hour desc limit 1) as last
    ) e
    cross join generate_series(greatest($4::timestamptz, e.first), least($5::timestamptz, e.last), interval '1 hour') as h(hour)
    cross join holdfast.statistics s
    where e.first is not null and s.org_id = $1::text and s.hour = any(array[h.hour])
        and s.flow between coalesce($2::text, '') and coalesce($2::text, U&'\+10FFFF')
        and ($3::int is null or s.flow_version = $3::int)
    union all
    select (b.tally ->> 0) collate "C", (b.tally ->> 1)::int, b.tally ->> 2, b.tally ->> 3, (b.bar ->> 0)::smallint,
        (b.bar ->> 1)::bigint, (b.bar ->> 2)::bigint, (b.bar ->> 3)::bigint, (b.bar ->> 4)::bigint
    from (
        select t.tally, jsonb_array_elements(t.tally -> 4) as bar
        from (
            select jsonb_array_elements(d.tallies) as tally from holdfast.statistics_deltas d
            where d.org_id = $1::text
                and ($4::timestamptz is null or d.hour >= $4::timestamptz)
                and ($5::timestamptz is null or d.hour <= $5::timestamptz)
        ) t
        where ($2::text is null or t.tally ->> 0 = $2::text) and ($3::int is null or (t.tally ->> 1)::int = $3::int)
    ) b
) x (flow, flow_version, node, outcome, bar, count, total, least, most)
group by x.flow, x.flow_version, x.node, x.outcome, x.bar
order by x.flow, x.flow_version, x.node, x.outcome, x.bar
