-- How each of these instances came to the version of its flow that it is on: its last migration, if it had one.
select u.id, m.detail
from unnest($1::uuid[], $2::smallint[]) as u(id, bucket)
cross join lateral (
    select t.detail from holdfast.steps t
    where t.instance_id = any(array[u.id]) and t.bucket = u.bucket and t.kind = 'control' and t.node = '@migrate'
    order by t.opened_version desc limit 1
) m
