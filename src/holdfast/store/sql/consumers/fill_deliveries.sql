-- Give a consumer a page of the past facts it takes, in the order of their commits, and move its cursor behind them.
-- It is held meanwhile (`filled_to` is not null): no commit makes any of its facts due, so none overtakes an older one.
-- What was abandoned with an earlier removal is open again. `again` opens all that is closed, but for gates: their answers
-- are in the history of the instance.
with c as materialized (
    select t.* from holdfast.consumers t
    where t.id = any(array[$1::uuid]) and t.bucket = $2::smallint and t.filled_to = $3::jsonb
    for update skip locked
), page as materialized (
    select a.*, c.id as consumer_id, c.max_attempts,
        case a.kind when 'hook' then c.takes_hooks and (c.hooks is null or a.code = any(c.hooks))
            else c.takes_transitions end
        and (c.definitions is null or a.definition = any(c.definitions))
        and (c.states is null or a.state = any(c.states))
        and (c.events is null or a.event = any(c.events) or a.number = any(c.events)) as is_taken
    from c
    cross join lateral (
        select x.instance_id, x.bucket, x.created_at, x.id, x.org_id, x.definition, x.kind, x.type, x.state, x.event, x.code,
            case when c.events is not null then x.body ->> 'code' end as number, x.seq, x.ordinal, x.starts_at, x.ends_at
        from holdfast.acks x
        where x.org_id = c.org_id and x.environment = c.environment and x.created_at >= $4::timestamptz
            and (x.created_at, x.instance_id, x.seq, x.ordinal) > ($4::timestamptz, $5::uuid, $6::bigint, $7::smallint)
        order by x.created_at, x.instance_id, x.seq, x.ordinal limit $8::bigint
    ) a
), given as (
    insert into holdfast.ack_consumers as t (instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq, ordinal,
        starts_at, ends_at, most)
    select p.instance_id, p.bucket, p.created_at, p.id, p.consumer_id, p.org_id, p.seq, p.ordinal, p.starts_at, p.ends_at,
        p.max_attempts
    from page p
    where p.is_taken and ($9::boolean is false or p.type is distinct from 'gate')
    order by p.instance_id, p.created_at, p.id
    on conflict (ack_id, created_at, consumer_id, instance_id, bucket) do update set status = 'pending', next_due = null,
        most = t.attempts + excluded.most, closed_at = null, settled_at = null, delivered_at = null, message = null
    where num_nonnulls(t.closed_at) = 1 and ($9::boolean or t.status = 'abandoned')
    returning 1
), reached as (
    select count(*) as seen from page
)
update holdfast.consumers t set
    filled_to = case when r.seen >= $8::bigint then $3::jsonb || (
        select jsonb_build_object('at', p.created_at, 'instance', p.instance_id, 'seq', p.seq, 'ordinal', p.ordinal)
        from page p order by p.created_at desc, p.instance_id desc, p.seq desc, p.ordinal desc limit 1) end,
    swept_to = case when r.seen < $8::bigint then '{"phase": "wait", "then": "arm"}'::jsonb end
from c, reached r
where t.id = any(array[c.id]) and t.bucket = c.bucket
returning r.seen, (select count(*) from given)
