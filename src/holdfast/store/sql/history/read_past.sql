-- Every step of these instances so far, as a rollback sees them.
select t.instance_id, t.id, t.created_at, t.hop, t.run, t.opened_version, t.opened_ordinal, t.fence, t.node, t.path,
    t.kind, t.status, t.input, t.output, t.detail
from unnest($1::uuid[], $2::smallint[]) as u(instance, bucket)
join holdfast.steps t on t.instance_id = any(array[u.instance]) and t.bucket = u.bucket
    and t.outcome is distinct from 'carried'
