-- The same worker goes on with the token's next step: the row changes in place, under its fence.
with w as (
    update holdfast.work t set step_id = u.step, step_created_at = u.at, target = u.queue, fence = u.fence,
        patience = u.patience, deadline_at = $10::timestamptz + u.patience * interval '1 second'
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::bigint[], $6::uuid[], $7::timestamptz[], $8::text[],
        $9::real[])
        as u(instance, bucket, path, held, fence, step, at, queue, patience)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.held
        and t.worker is not distinct from $11::uuid
    returning 1
)
select holdfast.expect('hand_off_work', count(*), $12::bigint) from w
