-- Turn due timers into signals, oldest first.
with due as materialized (
    select t.instance_id, t.id, t.bucket from holdfast.timers t
    where t.due_at <= (select holdfast.clock())
    order by t.due_at limit $1::bigint
    for update skip locked
), gone as (
    delete from holdfast.timers t using due d
    where t.instance_id = any(array[d.instance_id]) and t.id = d.id and t.bucket = d.bucket
    returning t.*
)
-- The moment is part of the signal's id: a timer that was set again must not meet the signal of its last time, which a
-- commit may be consuming right now. A signal that was sent for later keeps its own id.
insert into holdfast.signals (instance_id, bucket, id, org_id, kind, payload, ripe_at)
select g.instance_id, g.bucket, case g.purpose when 'signal' then g.id else md5(g.id::text || g.due_at::text)::uuid end,
    g.org_id, case g.purpose when 'signal' then 'event' else 'timer' end,
    case g.purpose when 'signal' then g.payload else coalesce(g.payload, '{}')
        || jsonb_build_object('wait', g.wait, 'purpose', g.purpose, 'due_at', g.due_at) end, g.due_at
from gone g
on conflict do nothing
returning instance_id
