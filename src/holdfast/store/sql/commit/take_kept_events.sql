-- The oldest kept events of each name that an open wait takes, taken out of the inbox.
with oldest as materialized (
    select s.instance_id, s.id, s.bucket
    from unnest($1::uuid[], $2::smallint[], $3::text[]) as u(instance, bucket, event)
    cross join lateral (
        select t.instance_id, t.id, t.bucket from holdfast.inbox t
        where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.event = u.event
            and t.expires_at - (select holdfast.clock()) > interval '0'
        order by t.created_at, t.id limit $4::bigint
    ) s
), gone as (
    delete from holdfast.inbox t using oldest o
    where t.instance_id = any(array[o.instance_id]) and t.id = o.id and t.bucket = o.bucket
    returning t.instance_id, t.id, t.event, t.payload, t.actor, t.node, t.created_at, t.expires_at
)
select * from gone g order by g.created_at, g.id
