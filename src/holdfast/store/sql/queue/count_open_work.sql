-- Is anything ready that these queues could do, or any signal waiting?
select exists (select from holdfast.signals s where true),
    exists (select from unnest($1::text[]) as q(queue) cross join lateral (
        select from holdfast.work w where w.queue = any(array[q.queue]) and w.worker is null limit 1) x),
    exists (select from holdfast.work w where w.worker = $2::uuid),
    exists (select from holdfast.timers t where t.due_at <= (select holdfast.clock())),
    exists (select from holdfast.work w where w.queue = '' and w.deadline_at <= (select holdfast.clock())),
    exists (select from holdfast.stale_checks c where c.due_at <= (select holdfast.clock()))
