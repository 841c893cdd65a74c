-- Workers alive, workers lost within a day, whether anything waits to be done, and where the last lost ones were.
select count(*) filter (where w.stopped_at is null and w.lease_until > clock_timestamp()),
    count(*) filter (where w.is_lost),
    exists (select from holdfast.signals s where s.ripe_at <= (select holdfast.clock()))
        or exists (select from holdfast.work k where k.worker is null)
        or exists (select from holdfast.timers t where t.due_at <= (select holdfast.clock())),
    array_to_string(
        (array_agg(format('pid %s on %s', w.pid, w.host) order by w.lease_until desc) filter (where w.is_lost))[:5], ', ')
from (
    select t.*, t.stopped_at is null and t.lease_until <= clock_timestamp()
        and t.lease_until > clock_timestamp() - interval '1 day' as is_lost
    from holdfast.workers t
) w
