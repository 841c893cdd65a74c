-- Put the open step of a token into its queue again, under a fence nobody has seen.
insert into holdfast.work (instance_id, bucket, path, org_id, step_id, step_created_at, queue, target, patience, fence, ripe_at,
    ready_at)
select s.instance_id, s.bucket, s.path, s.org_id, s.id, s.created_at, $5::text, $5::text, $6::real,
    greatest(s.fence, $7::bigint) + 1, $8::timestamptz, holdfast.clock()
from holdfast.steps s
where s.instance_id = $1::uuid and s.bucket = $2::smallint and s.created_at = $3::timestamptz and s.id = $4::uuid
    and s.closed_at is null
on conflict do nothing
returning path
