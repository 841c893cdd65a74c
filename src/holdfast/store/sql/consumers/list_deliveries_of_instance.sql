-- A page of the deliveries of one instance, in the order of its facts, open ones or all.
-- All of them are found by its facts; only those that are open have an index by instance.
select d.instance_id, d.created_at, d.ack_id, c.environment, c.name, d.seq, d.ordinal, d.status, d.attempts, d.most, d.next_due,
    d.delivered_at, d.closed_at, d.verdict, d.message, a.kind, a.state, a.event, a.code, a.external_ref, a.definition, d.consumer_id
from (
    (
        select t.* from holdfast.acks f
        cross join lateral (
            select x.* from holdfast.ack_consumers x
            where x.created_at = f.created_at and x.ack_id = f.id and x.instance_id = f.instance_id and x.bucket = f.bucket
            offset 0
        ) t
        where $4::boolean and f.instance_id = $1::uuid and f.bucket = $2::smallint and f.org_id = $3::text
            and f.created_at >= $5::timestamptz and (f.created_at, f.id) >= ($5::timestamptz, $6::uuid)
            and (f.created_at, f.id, t.consumer_id) > ($5::timestamptz, $6::uuid, $8::uuid)
        order by f.created_at, f.id, t.consumer_id limit $7::bigint
    )
    union all
    (
        select t.* from holdfast.ack_consumers t
        where not $4::boolean and t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
            and t.closed_at is null and (t.created_at, t.ack_id, t.consumer_id) > ($5::timestamptz, $6::uuid, $8::uuid)
        order by t.created_at, t.ack_id, t.consumer_id limit $7::bigint
    )
) d
cross join lateral (
    select x.environment, x.name from holdfast.consumers x where x.id = any(array[d.consumer_id]) limit 1
) c
cross join lateral (
    select f.* from holdfast.acks f
    where f.instance_id = d.instance_id and f.created_at = d.created_at and f.id = d.ack_id and f.bucket = d.bucket
    limit 1
) a
order by d.created_at, d.ack_id, d.consumer_id
