-- Put signals back into the queue from their dead letters, and say who did it and why.
with letters as materialized (
    select d.id, d.bucket, d.org_id, d.instance_id, d.envelope
    from (select x.id from unnest($1::uuid[]) as x(id) order by x.id) u
    join holdfast.dead_letters d on d.id = any(array[u.id])
    where d.org_id is not distinct from $2::text and d.source = 'signal' and num_nulls(d.resolved_at) = 1
    for update of d
), resolved as (
    update holdfast.dead_letters t
    set resolved_at = (select holdfast.clock()), resolution = 'replayed', resolved_by = $3::text, resolved_why = $4::text
    from letters l
    where t.id = any(array[l.id]) and t.bucket = l.bucket
    returning t.id, t.bucket, t.org_id, t.instance_id, t.reason, t.resolved_at
), queued as (
    insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, trace, ripe_at)
    select l.instance_id, (l.envelope ->> 'id')::uuid, l.bucket, l.org_id, l.envelope ->> 'kind', l.envelope -> 'payload',
        l.envelope ->> 'trace', (select holdfast.clock())
    from letters l
    on conflict do nothing
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
