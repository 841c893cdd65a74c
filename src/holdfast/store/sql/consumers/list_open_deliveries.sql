-- A page of the facts that are open for a consumer, oldest first.
select d.instance_id, d.created_at, d.ack_id, c.environment, c.name, d.seq, d.ordinal, d.status, d.attempts, d.most, d.next_due,
    d.delivered_at, d.closed_at, d.verdict, d.message, a.kind, a.state, a.event, a.code, a.external_ref, a.definition, d.consumer_id
from holdfast.consumers c
cross join lateral (
    select t.* from holdfast.ack_consumers t
    where t.consumer_id = c.id and num_nulls(t.closed_at) = 1 and t.created_at >= $4::timestamptz
        and (t.created_at, t.ack_id) > ($4::timestamptz, $5::uuid)
    order by t.created_at, t.ack_id limit $6::bigint
) d
cross join lateral (
    select f.* from holdfast.acks f
    where f.instance_id = d.instance_id and f.created_at = d.created_at and f.id = d.ack_id and f.bucket = d.bucket
    limit 1
) a
where c.org_id = $1::text and c.environment = $2::text and c.name = $3::text
order by d.created_at, d.ack_id
