-- The instances that hold these idempotency keys, and whether they were started with the same input.
select u.ordinal, t.id, t.input = u.input
from unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::jsonb[], $6::int[]) as u(org, flow, key, bucket, input, ordinal)
join holdfast.instances t on t.idempotency_key = any(array[u.key]) and t.org_id = u.org and t.flow = u.flow
    and t.bucket = u.bucket and t.idempotency_key is not null
