-- The sums of all times and what is not folded yet, for one flow or all.
select x.flow, x.flow_version, x.node, x.outcome, x.bar, sum(x.count)::bigint, sum(x.total)::bigint, min(x.least), max(x.most)
from (
    select s.flow, s.flow_version, s.node, s.outcome, s.bar, s.count, s.total, s.least, s.most
    from holdfast.statistics s
    where s.org_id = $1::text and s.hour = '-infinity'
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
        ) t
        where ($2::text is null or t.tally ->> 0 = $2::text) and ($3::int is null or (t.tally ->> 1)::int = $3::int)
    ) b
) x (flow, flow_version, node, outcome, bar, count, total, least, most)
group by x.flow, x.flow_version, x.node, x.outcome, x.bar
order by x.flow, x.flow_version, x.node, x.outcome, x.bar
