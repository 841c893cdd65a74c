-- Where an instance has been, under the names of then, and its migrations, which tell what these nodes are called today.
select t.node, t.opened_version, t.opened_ordinal, t.kind, case when t.node = '@migrate' then t.detail end
from holdfast.steps t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and (t.kind = 'forward' or t.node = '@migrate')
