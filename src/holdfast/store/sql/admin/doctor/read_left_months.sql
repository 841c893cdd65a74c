-- What the last whole pass over long-lived instances had to leave where it is, and why.
select coalesce(u.mark -> 'left', '[]')::text
from holdfast.upkeep u
where u.task = 'carry' and u.finished_at > holdfast.clock() - interval '3 days'
