-- Let an instance that was stored and never begun begin, at the step it was meant to begin at.
insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
select t.id, t.id, t.bucket, t.org_id, 'started', coalesce(t.state -> 'started', '{}'), $4::timestamptz
from holdfast.instances t where t.id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
on conflict do nothing
returning id
