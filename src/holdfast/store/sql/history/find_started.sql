-- The instances that hold these idempotency keys, and whether they were started with the same input.
select u.ordinal, t.id, t.input = u.input
from unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::jsonb[], $6::int[]) as u(org, flow, key, bucket, input, ordinal)
cross join lateral (
    select i.id, i.input from holdfast.instances i
    where i.idempotency_key = u.key and i.org_id is not distinct from u.org and i.flow is not distinct from u.flow
        and i.bucket = u.bucket
    limit 1
) t
