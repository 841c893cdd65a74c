-- Every step of these instances so far, as a rollback sees them.
select t.instance_id, t.id, t.created_at, t.node, t.path, t.hop, t.kind, t.run, t.status, t.opened_version,
    t.opened_ordinal, t.fence, t.input, t.output, t.detail
from unnest($1::uuid[], $2::smallint[]) as u(instance, bucket)
join holdfast.steps t on t.instance_id = any(array[u.instance]) and t.bucket = u.bucket
