-- Mark since when the first steps of queues nobody serves wait, and tell it on their instances, at growing intervals.
with moment as materialized (
    select holdfast.clock() as now
), head as (
    select w.instance_id, w.path, w.bucket, w.missed_since, w.missed_at,
        1 + $4::real * (get_byte(uuid_send(w.step_id), 10) / 127.5 - 1) as jitter
    from unnest($1::text[]) as q(queue)
    cross join lateral (
        select t.instance_id, t.path, t.bucket, t.step_id, t.missed_since, t.missed_at from holdfast.work t
        where t.queue = any(array[q.queue]) and t.worker is null
        order by t.ripe_at limit $2::bigint
    ) w
), due as materialized (
    select h.* from head h cross join moment m
    where h.missed_since is null
        or m.now >= coalesce(h.missed_at, h.missed_since) + interval '1 second' * h.jitter
            * greatest($3::real, least($5::real, coalesce(extract(epoch from h.missed_at - h.missed_since), 0)))
), free as materialized (
    select w.* from due d
    cross join lateral (
        select t.instance_id, t.path, t.bucket from holdfast.work t
        where t.instance_id = any(array[d.instance_id]) and t.path = d.path and t.bucket = d.bucket
            and num_nulls(t.worker) = 1 and t.missed_since is not distinct from d.missed_since
            and t.missed_at is not distinct from d.missed_at
        for update skip locked
    ) w
), marked as (
    update holdfast.work t set missed_since = coalesce(t.missed_since, m.now),
        missed_at = case when num_nulls(t.missed_since) = 0 then m.now end
    from free f cross join moment m
    where t.instance_id = any(array[f.instance_id]) and t.path = f.path and t.bucket = f.bucket
    returning t.instance_id, t.bucket, t.org_id, t.step_id, t.step_created_at, t.queue, t.missed_since, t.missed_at
), told as (
    insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, node, token, actor, detail)
    select k.instance_id, k.bucket, holdfast.date_beside(k.instance_id, k.bucket, i.version, i.updated_at, k.missed_at),
        i.version, 32000 + row_number() over (partition by k.instance_id), k.org_id,
        'step_skipped_missing_handler', s.node, s.path || '@' || s.hop, 'system',
        jsonb_build_object('handler', regexp_replace(k.queue, '^.*:', ''), 'queue', k.queue,
            'waiting_seconds', round(extract(epoch from k.missed_at - k.missed_since)::numeric, 1))
    from marked k
    cross join lateral (
        select t.node, t.path, t.hop from holdfast.steps t
        where t.instance_id = any(array[k.instance_id]) and t.created_at = k.step_created_at and t.id = k.step_id
            and t.bucket = k.bucket
        limit 1
    ) s
    cross join lateral (
        select t.version, t.updated_at from holdfast.instances t where t.id = any(array[k.instance_id]) and t.bucket = k.bucket limit 1
    ) i
    where num_nulls(k.missed_at) = 0
)
select count(*) from marked
