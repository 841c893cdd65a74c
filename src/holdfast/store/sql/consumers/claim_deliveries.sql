-- Take the next due facts of consumers and count the attempt before anything is sent; the next one is due by itself.
-- A fact out of attempts, or past its end, is only put off: the commit of its instance has to end it. Of each consumer, facts
-- are taken until their bodies are $7 bytes, so however large they are, a claim fits into memory. Of a consumer that could
-- not be reached only a probe is claimed, and counts nothing until it has reached somebody.
with due as materialized (
    select d.instance_id, d.bucket, d.created_at, d.ack_id, d.consumer_id, d.next_due, c.name, u.resend, u.counts,
        case when d.ends_at <= (select holdfast.clock()) then 'expired' when d.attempts >= d.most then 'exhausted' end as over
    from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::int[]) as u(consumer, room, resend, counts)
    cross join lateral (
        select x.name from holdfast.consumers x
        where x.id = u.consumer and x.removed_at is null and x.filled_to is null
            and (x.way <> 'push' or u.counts = 0 or not exists (
                select from holdfast.consumer_beats b
                where b.consumer_id = any(array[x.id]) and b.bucket = x.bucket and b.reachable_at is not null
            ))
        limit 1
    ) c
    cross join lateral (
        select t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id, t.attempts, t.most, t.ends_at, t.next_due
        from holdfast.ack_consumers t
        where t.consumer_id = u.consumer and t.next_due <= (select holdfast.clock())
        order by t.next_due limit least(u.room, $5::bigint)
        for update skip locked
    ) d
), told as materialized (
    select d.*, a.needs_ack, a.kind, a.state, a.step_id, a.body
    from due d
    cross join lateral (
        select f.needs_ack, f.kind, f.state, f.step_id, f.body::text as body from holdfast.acks f
        where f.instance_id = d.instance_id and f.created_at = d.created_at and f.id = d.ack_id and f.bucket = d.bucket
        limit 1
    ) a
), fitting as materialized (
    select m.* from (
        select t.*, sum(octet_length(t.body)) over (
            partition by t.consumer_id order by t.next_due, t.instance_id, t.ack_id
            rows between unbounded preceding and 1 preceding
        ) as before
        from told t
    ) m
    where coalesce(m.before, 0) < $7::bigint
), claimed as (
    update holdfast.ack_consumers t set attempts = t.attempts + case when num_nulls(d.over) = 1 then d.counts else 0 end,
        next_due = least((select holdfast.clock())
            + case t.status when 'delivered' then $6::bigint else d.resend end * interval '1 microsecond',
            case when t.ends_at > (select holdfast.clock()) then t.ends_at end)
    from fitting d
    where t.instance_id = any(array[d.instance_id]) and t.created_at = d.created_at and t.ack_id = d.ack_id
        and t.consumer_id = d.consumer_id and t.bucket = d.bucket
    returning t.instance_id, t.bucket, t.created_at, t.ack_id, t.consumer_id, t.org_id, t.attempts, t.most, t.seq, t.ordinal,
        d.over, d.name, d.counts, d.needs_ack, d.kind, d.state, d.step_id, d.body
), noted as (
    insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id, consumer, detail)
    select holdfast.new_id(r.bucket), r.bucket, (select holdfast.clock()), r.org_id, 'ACK_RETRY', 'warn',
        'The fact ' || r.ack_id || ' is sent to "' || r.name || '" again: attempt ' || r.attempts || ' of ' || r.most || '.',
        r.instance_id, r.name, jsonb_build_object('ack_guid', r.ack_id, 'attempt', r.attempts, 'most', r.most)
    from claimed r
    where r.attempts > 1 and r.counts = 1 and num_nulls(r.over) = 1
)
select r.instance_id, r.created_at, r.ack_id, r.consumer_id, r.org_id, r.attempts, r.most, r.seq, r.ordinal, r.over,
    r.needs_ack, r.kind, r.state, r.step_id, r.body
from claimed r
