-- The targets of one kind that have outstanding effects, in order, each with the microseconds until its next one is due.
with recursive heads as (
    (
        select e.target, e.next_attempt_at from holdfast.effects e
        where e.effect_type = $1::text and e.status in ('pending', 'failed') and e.target > $2::text
        order by e.target, e.next_attempt_at limit 1
    )
    union all
    select n.target, n.next_attempt_at
    from heads h
    cross join lateral (
        select e.target, e.next_attempt_at from holdfast.effects e
        where e.effect_type = $1::text and e.status in ('pending', 'failed') and e.target > h.target
        order by e.target, e.next_attempt_at limit 1
    ) n
)
select h.target, (extract(epoch from h.next_attempt_at - (select holdfast.clock())) * 1000000)::bigint
from heads h
limit $3::bigint
