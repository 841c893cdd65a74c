-- Signals that were already received under these ids, with the hash of what they carried.
select t.instance_id, t.key, t.hash
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[]) as u(instance, bucket, source, key)
join holdfast.outbox_receipts t on t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.source = u.source
    and t.key = u.key
