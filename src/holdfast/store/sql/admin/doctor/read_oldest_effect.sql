-- How long the oldest effect that is due has waited.
select extract(epoch from (select holdfast.clock()) - min(e.next_attempt_at))::float8
from holdfast.effects e where e.status in ('pending', 'failed')
