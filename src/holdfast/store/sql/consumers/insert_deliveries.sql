-- Write a delivery of each fact for every consumer that takes it, alive or not.
-- Only the first open facts of a consumer and an instance are due; a consumer that is still given the past waits until it
-- has all of it.
insert into holdfast.ack_consumers (instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq, ordinal, starts_at, ends_at,
    most, next_due)
select f.instance, f.bucket, $16::timestamptz, f.id, f.consumer, f.org, f.seq, f.ordinal, f.starts, f.ends, f.most,
    case when f.is_ready and f.seq = f.first and not exists (
        select from holdfast.ack_consumers o
        where o.instance_id = any(array[f.instance]) and o.consumer_id = f.consumer and o.bucket = f.bucket
            and o.closed_at is null and o.seq < f.seq
    ) then greatest($16::timestamptz, f.starts) end
from (
    select u.*, c.id as consumer, c.max_attempts as most, c.filled_to is null as is_ready,
        min(u.seq) over (partition by u.instance, c.id) as first
    from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::bigint[], $12::smallint[], $13::timestamptz[], $14::timestamptz[], $15::text[])
        as u(instance, bucket, id, org, environment, definition, kind, state, event, code, seq, ordinal, starts, ends, number)
    join holdfast.consumers c on c.org_id = any(array[u.org]) and c.environment = u.environment
    where c.removed_at is null
        and case u.kind when 'hook' then c.takes_hooks and (c.hooks is null or u.code = any(c.hooks))
            else c.takes_transitions end
        and (c.definitions is null or u.definition = any(c.definitions))
        and (c.states is null or u.state = any(c.states))
        and (c.events is null or u.event = any(c.events) or u.number = any(c.events))
) f
