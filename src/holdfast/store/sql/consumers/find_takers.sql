-- Which of these definitions have a consumer of transitions.
select u.number
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as u(org, environment, definition, number)
where exists (
    select from holdfast.consumers c
    where c.org_id = any(array[u.org]) and c.environment = u.environment and c.removed_at is null and c.takes_transitions
        and (c.definitions is null or u.definition = any(c.definitions)))
