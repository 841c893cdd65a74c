-- Consumers that are being given past facts, and those whose facts have to be gone over once more.
select c.id, c.since, c.filled_to, c.swept_to, num_nulls(c.removed_at) = 0
from holdfast.consumers c
where c.filled_to is not null or c.swept_to is not null
order by c.id limit $1::bigint
