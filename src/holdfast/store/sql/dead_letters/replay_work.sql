-- Put parked steps back into their queues with all their calls ahead of them, and say who did it and why.
with letters as materialized (
    select d.id, d.bucket, d.org_id, d.instance_id, d.envelope
    from unnest($1::uuid[]) as u(id)
    join holdfast.dead_letters d on d.id = any(array[u.id])
    where d.org_id is not distinct from $2::text and d.source = 'work' and num_nulls(d.resolved_at) = 1
    order by row(d.instance_id, d.envelope ->> 'path')  -- the order in which everybody locks work
    for update of d
), freed as (
    update holdfast.work t set queue = t.target, ripe_at = (select holdfast.clock()), ready_at = (select holdfast.clock())
    from letters l
    where t.instance_id = any(array[l.instance_id]) and t.path = l.envelope ->> 'path' and t.bucket = l.bucket
        and t.step_id is not distinct from (l.envelope ->> 'step')::uuid and num_nulls(t.worker) = 1
    returning t.instance_id, t.bucket, t.step_id, t.step_created_at, l.id as letter
), afresh as (
    update holdfast.steps t set calls = 0
    from freed f
    where t.instance_id = any(array[f.instance_id]) and t.created_at = f.step_created_at and t.id = f.step_id
        and t.bucket = f.bucket
), resolved as (
    update holdfast.dead_letters t
    set resolved_at = (select holdfast.clock()), resolution = 'replayed', resolved_by = $3::text, resolved_why = $4::text
    from freed f
    where t.id = any(array[f.letter]) and t.bucket = f.bucket
    returning t.id, t.bucket, t.org_id, t.instance_id, t.reason, t.resolved_at
), noted as (
    insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, actor, detail)
    select r.instance_id, r.bucket, holdfast.date_beside(r.instance_id, r.bucket, i.version, i.updated_at, r.resolved_at),
        i.version, 32000 + row_number() over (partition by r.instance_id),
        r.org_id, 'dead_letter_replayed', $3::text, jsonb_build_object('letter', r.id, 'code', r.reason, 'why', $4::text)
    from resolved r
    cross join lateral (
        select t.version, t.updated_at from holdfast.instances t where t.id = any(array[r.instance_id]) and t.bucket = r.bucket limit 1
    ) i
)
select r.id from resolved r
