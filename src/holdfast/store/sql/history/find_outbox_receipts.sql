-- Signals by id, in the order given: the hash of what was received under it before, if anything was, and of what comes now.
select t.hash, holdfast.signal_digest(u.event, u.payload, u.node), t.answer
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::jsonb[], $6::text[])
    with ordinality as u(instance, bucket, key, event, payload, node, number)
left join lateral (
    select r.hash, r.answer from holdfast.outbox_receipts r
    where r.instance_id = u.instance and r.source = 'signal' and r.key = u.key and r.bucket = u.bucket
    limit 1
) t on true
order by u.number
