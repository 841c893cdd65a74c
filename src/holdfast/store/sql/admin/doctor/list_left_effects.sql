-- Of the effects that are due the longest: those that no worker could deliver so far, by kind, target and what was lacking.
select d.effect_type, d.target, d.code, min(d.message), count(*), max(d.age)
from (
    select e.effect_type, e.target, e.attempts, e.error ->> 'code' as code, e.error ->> 'message' as message,
        extract(epoch from (select holdfast.clock()) - e.next_attempt_at)::float8 as age
    from holdfast.effects e
    where e.status in ('pending', 'failed')
    order by e.next_attempt_at limit 1000
) d
where d.age > 0
    and (d.code in ('EFFECT_SECRET_MISSING', 'EFFECT_NOT_SET_UP')
        or (d.code is null and d.attempts = 0 and d.age > $1::float8))
group by d.effect_type, d.target, d.code
order by max(d.age) desc limit 20
