-- Seconds until the next timer is due, or parked work a moment after: it comes in batches. Null when there is neither.
-- Then the same of the next look for an instance that stands still.
select (extract(epoch from least(
    (select t.due_at from holdfast.timers t order by t.due_at limit 1),
    (select w.deadline_at from holdfast.work w where w.queue = '' order by w.deadline_at limit 1) + interval '50 milliseconds'
) - holdfast.clock()) * 1000000)::bigint,
    (extract(epoch from
        (select c.due_at from holdfast.stale_checks c order by c.due_at limit 1)
    - holdfast.clock()) * 1000000)::bigint
