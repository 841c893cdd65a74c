-- Settle deliveries. What failed and halts stays open; a closed one keeps the moment of its end.
with w as (
    update holdfast.ack_consumers t set status = u.status, verdict = u.verdict, message = u.message, next_due = null,
        settled_at = case when u.closed then t.settled_at end,
        closed_at = case when u.closed then coalesce(t.closed_at, $10::timestamptz) end
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::uuid[], $6::text[], $7::boolean[], $8::text[],
        $9::text[])
        as u(instance, bucket, at, ack, consumer, status, closed, verdict, message)
    where t.instance_id = any(array[u.instance]) and t.created_at = u.at and t.ack_id = u.ack and t.consumer_id = u.consumer
        and t.bucket = u.bucket
    returning 1
)
select holdfast.expect('close_deliveries', count(*), $11::bigint) from w
