-- Workers alive, workers lost within a day, and whether anything waits to be done.
select count(*) filter (where w.stopped_at is null and w.lease_until > clock_timestamp()),
    count(*) filter (where w.stopped_at is null and w.lease_until <= clock_timestamp()
        and w.lease_until > clock_timestamp() - interval '1 day'),
    exists (select from holdfast.signals s where s.ripe_at <= (select holdfast.clock()))
        or exists (select from holdfast.work k where k.worker is null)
        or exists (select from holdfast.timers t where t.due_at <= (select holdfast.clock()))
from holdfast.workers w
