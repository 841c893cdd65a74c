-- Hold tasks that are about to be decided: in whose hands they are, and for which roles they were opened.
select t.id, t.assignee, t.roles
from unnest($1::uuid[], $2::smallint[]) as u(id, bucket)
join holdfast.tasks t on t.id = any(array[u.id]) and t.bucket = u.bucket
order by u.id
for no key update of t
