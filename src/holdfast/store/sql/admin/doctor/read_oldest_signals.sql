-- How long the oldest ready signal and the oldest timer that is due have waited.
select 'signal', extract(epoch from (select holdfast.clock()) - s.ripe_at)::float8
from (select t.ripe_at from holdfast.signals t order by t.ripe_at limit 1) s
union all
select 'timer', extract(epoch from (select holdfast.clock()) - d.due_at)::float8
from (select t.due_at from holdfast.timers t order by t.due_at limit 1) d
