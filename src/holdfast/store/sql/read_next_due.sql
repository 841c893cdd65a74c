-- Seconds until the next timer is due; null when there is none.
select (extract(epoch from (select t.due_at from holdfast.timers t order by t.due_at limit 1) - holdfast.clock()) * 1000000)::bigint
