-- Remember that a node of an instance took an event sent to a key, so that no later lap takes it again.
insert into holdfast.outbox_receipts (instance_id, bucket, source, key, org_id, created_at)
select u.instance, u.bucket, 'event', u.key, u.org, (select holdfast.clock())
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[]) as u(instance, bucket, key, org)
on conflict do nothing
