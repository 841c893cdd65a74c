-- Settle a fact in the transaction that processed it, and tell its instance; no row: somebody has settled it before.
with d as (
    update holdfast.ack_consumers t set status = 'processed', settled_at = (select holdfast.clock()), next_due = null
    where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.created_at = $3::timestamptz and t.ack_id = $4::uuid
        and t.consumer_id = $5::uuid and t.status in ('pending', 'delivered') and num_nonnulls(t.closed_at, t.settled_at) = 0
    returning t.instance_id, t.bucket, t.org_id
)
insert into holdfast.signals (instance_id, bucket, id, org_id, kind, payload, ripe_at)
select d.instance_id, d.bucket, holdfast.new_id(d.bucket), d.org_id, 'acked', $6::jsonb, (select holdfast.clock())
from d
returning id
