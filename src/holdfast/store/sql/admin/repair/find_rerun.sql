-- What an idempotency key has done to an instance before: whether it asked for the same, and the instance that began.
select r.hash = holdfast.signal_digest('rerun', $4::jsonb, $5::text),
    (select e.detail ->> 'instance' from holdfast.events e
        where e.instance_id = r.instance_id and e.bucket = r.bucket and e.type = 'instance_run_again'
            and e.detail ->> 'key' = $6::text
        limit 1)
from holdfast.outbox_receipts r
where r.instance_id = $1::uuid and r.source = 'signal' and r.key = $3::text and r.bucket = $2::smallint
