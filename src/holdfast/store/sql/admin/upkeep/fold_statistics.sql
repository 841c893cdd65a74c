-- Add the counts of finished commits to the sums of their hour and of all times; how many rows that were.
with gone as (
    delete from holdfast.statistics_deltas d
    where d.ctid = any(array(select n.ctid from holdfast.statistics_deltas n limit $1::bigint))
    returning d.*
), counted as (
    select b.org_id, b.hour, b.tally ->> 0 as flow, (b.tally ->> 1)::int as flow_version, b.tally ->> 2 as node,
        b.tally ->> 3 as outcome, (b.bar ->> 0)::smallint as bar, (b.bar ->> 1)::bigint as count,
        (b.bar ->> 2)::bigint as total, (b.bar ->> 3)::bigint as least, (b.bar ->> 4)::bigint as most
    from (
        select t.org_id, t.hour, t.tally, jsonb_array_elements(t.tally -> 4) as bar
        from (select g.org_id, g.hour, jsonb_array_elements(g.tallies) as tally from gone g) t
    ) b
), summed as (
    select c.org_id, h.hour, c.flow, c.flow_version, c.node, c.outcome, c.bar, sum(c.count)::bigint as count,
        sum(c.total)::bigint as total, min(c.least) as least, max(c.most) as most
    from counted c
    cross join lateral (values (c.hour), ('-infinity'::timestamptz)) as h(hour)
    group by c.org_id, h.hour, c.flow, c.flow_version, c.node, c.outcome, c.bar
), folded as (
    insert into holdfast.statistics as s
        (org_id, hour, flow, flow_version, node, outcome, bar, count, total, least, most)
    select u.* from summed u order by u.org_id, u.hour, u.flow collate "C", u.flow_version, u.node, u.outcome, u.bar
    on conflict (org_id, hour, flow, flow_version, node, outcome, bar) do update
        set count = s.count + excluded.count, total = s.total + excluded.total,
            least = least(s.least, excluded.least), most = greatest(s.most, excluded.most)
)
select count(*) from gone
