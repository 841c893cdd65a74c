-- All deliveries of these facts, under the locks of their instances: who has answered what.
select u.instance, u.ack, d.consumer_id, c.name, d.status, d.closed_at is not null, d.attempts, d.most, c.critical, d.verdict,
    a.kind, a.type, a.mode, a.code, d.settled_at is not null, c.removed_at is not null
from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[]) as u(instance, bucket, at, ack)
join holdfast.acks a on a.instance_id = any(array[u.instance]) and a.created_at = u.at and a.id = u.ack and a.bucket = u.bucket
join holdfast.ack_consumers d on d.instance_id = any(array[u.instance]) and d.created_at = u.at and d.ack_id = u.ack
    and d.bucket = u.bucket
join holdfast.consumers c on c.id = any(array[d.consumer_id])
