-- Which of these dead letters are still open; nobody else settles them before this transaction ends.
select d.id
from (select x.id from unnest($1::uuid[]) as x(id) order by x.id) u
join holdfast.dead_letters d on d.id = any(array[u.id])
where d.org_id is not distinct from $2::text and num_nulls(d.resolved_at) = 1
for update of d
