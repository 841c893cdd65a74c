-- Who holds these keys now, in the order given.
select u.number, t.id
from unnest($1::text[], $2::text[], $3::text[], $4::smallint[])
    with ordinality as u(key, org, flow, bucket, number)
cross join lateral (
    select i.id from holdfast.instances i
    where i.idempotency_key = u.key and i.org_id is not distinct from u.org and i.flow is not distinct from u.flow
        and i.bucket = u.bucket
    limit 1
) t
