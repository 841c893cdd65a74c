-- Dispatch steps of tokens that have no work row yet: leased to this worker, or free for any.
insert into holdfast.work (instance_id, bucket, path, org_id, step_id, step_created_at, queue, target, patience, worker, fence,
    ripe_at, deadline_at, ready_at)
select u.instance, u.bucket, u.path, u.org, u.step, u.at, u.queue, u.queue, u.patience, u.worker, u.fence, u.ripe_at,
    case when u.worker is not null then $12::timestamptz + u.patience * interval '1 second' end, $12::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::uuid[], $6::timestamptz[], $7::text[], $8::real[],
    $9::uuid[], $10::bigint[], $11::timestamptz[])
    as u(instance, bucket, path, org, step, at, queue, patience, worker, fence, ripe_at)
