-- Take the next due facts of consumers and count the attempt before anything is sent; the next one is due by itself.
-- A fact out of attempts, or past its end, is only put off: the commit of its instance has to end it.
with due as materialized (
    select d.instance_id, d.bucket, d.created_at, d.ack_id, d.consumer_id, c.name, u.resend,
        case when d.ends_at <= (select holdfast.clock()) then 'expired' when d.attempts >= d.most then 'exhausted' end as over
    from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as u(consumer, room, resend)
    cross join lateral (
        select x.name from holdfast.consumers x
        where x.id = u.consumer and x.removed_at is null and x.filled_to is null
        limit 1
    ) c
    cross join lateral (
        select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id, t.attempts, t.most, t.ends_at
        from holdfast.ack_consumers t
        where t.consumer_id = u.consumer and t.next_due <= (select holdfast.clock())
        order by t.next_due limit least(u.room, $4::bigint)
        for update skip locked
    ) d
), claimed as (
    update holdfast.ack_consumers t set attempts = t.attempts + case when num_nulls(d.over) = 1 then 1 else 0 end,
        next_due = least((select holdfast.clock())
            + case t.status when 'delivered' then $5::bigint else d.resend end * interval '1 microsecond',
            case when t.ends_at > (select holdfast.clock()) then t.ends_at end)
    from due d
    where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
        and t.consumer_id = d.consumer_id and t.bucket = d.bucket
    returning t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id, t.org_id, t.attempts, t.most, t.seq, t.ordinal,
        t.status, d.over, d.name
), noted as (
    insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id, consumer, detail)
    select holdfast.new_id(r.bucket), r.bucket, (select holdfast.clock()), r.org_id, 'ACK_RETRY', 'warn',
        'The fact ' || r.ack_id || ' is sent to "' || r.name || '" again: attempt ' || r.attempts || ' of ' || r.most || '.',
        r.instance_id, r.name, jsonb_build_object('ack_guid', r.ack_id, 'attempt', r.attempts, 'most', r.most)
    from claimed r
    where r.attempts > 1 and num_nulls(r.over) = 1
)
select r.instance_id, r.created_at, r.ack_id, r.consumer_id, r.org_id, r.attempts, r.most, r.seq, r.ordinal, r.over,
    a.needs_ack, a.kind, a.state, a.step_id, a.body
from claimed r
cross join lateral (
    select f.needs_ack, f.kind, f.state, f.step_id, f.body from holdfast.acks f
    where f.instance_id = r.instance_id and f.created_at = r.created_at and f.id = r.ack_id and f.bucket = r.bucket
    limit 1
) a
