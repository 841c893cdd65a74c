-- Remember what an idempotency key has asked for.
insert into holdfast.outbox_receipts (instance_id, bucket, source, key, org_id, hash, created_at)
values ($1::uuid, $2::smallint, 'signal', $3::text, $6::text, holdfast.signal_digest('rerun', $4::jsonb, $5::text),
    $7::timestamptz)
