-- The token's next step goes back to the queue, for any worker that can do it.
with w as (
    update holdfast.work t set step_id = u.step, step_created_at = u.at, queue = u.queue, target = u.queue, fence = u.fence,
        patience = u.patience, ripe_at = u.ripe_at, worker = null, deadline_at = null,
        ready_at = (select holdfast.clock())
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::bigint[], $5::bigint[], $6::uuid[], $7::timestamptz[], $8::text[],
        $9::real[], $10::timestamptz[])
        as u(instance, bucket, path, held, fence, step, at, queue, patience, ripe_at)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.path = u.path and t.fence = u.held
        and t.worker is not distinct from $11::uuid
    returning 1
)
select holdfast.expect('return_work', count(*), $12::bigint) from w
