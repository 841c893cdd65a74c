-- Consumers by their names, whether removed or not.
select u.number, c.id, c.way, c.max_attempts, c.in_flight, c.ttl, num_nulls(c.removed_at) = 0, num_nonnulls(c.filled_to, c.swept_to) > 0,
    c.target, c.owner
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as u(org, environment, name, number)
cross join lateral (
    select x.* from holdfast.consumers x
    where x.org_id = u.org and x.environment = u.environment and x.name = u.name
    limit 1
) c
order by u.number
