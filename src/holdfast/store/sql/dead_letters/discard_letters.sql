-- Give up on dead letters, and say who did it and why; a step that still waits has to be ended by its instance.
with letters as materialized (
    select d.id, d.bucket
    from (select x.id from unnest($1::uuid[]) as x(id) order by x.id) u
    join holdfast.dead_letters d on d.id = any(array[u.id])
    where d.org_id is not distinct from $2::text and num_nulls(d.resolved_at) = 1 and (
        d.source <> 'work' or not exists (
            select from holdfast.work w
            where w.instance_id = any(array[d.instance_id]) and w.path = d.envelope ->> 'path' and w.bucket = d.bucket
                and w.step_id is not distinct from (d.envelope ->> 'step')::uuid
        )
    ) and (
        d.source <> 'step' or not exists (
            select from holdfast.instances i
            where i.id = any(array[d.instance_id]) and i.bucket = d.bucket and num_nulls(i.completed_at) = 1
        )
    )
    for update of d
), resolved as (
    update holdfast.dead_letters t
    set resolved_at = (select holdfast.clock()), resolution = 'discarded', resolved_by = $3::text, resolved_why = $4::text
    from letters l
    where t.id = any(array[l.id]) and t.bucket = l.bucket
    returning t.id, t.bucket, t.org_id, t.instance_id, t.reason, t.resolved_at
), noted as (
    insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, actor, detail)
    select r.instance_id, r.bucket, holdfast.date_beside(r.instance_id, r.bucket, i.version, i.updated_at, r.resolved_at),
        i.version, 32000 + row_number() over (partition by r.instance_id),
        r.org_id, 'dead_letter_discarded', $3::text, jsonb_build_object('letter', r.id, 'code', r.reason, 'why', $4::text)
    from resolved r
    cross join lateral (
        select t.version, t.updated_at from holdfast.instances t where t.id = any(array[r.instance_id]) and t.bucket = r.bucket limit 1
    ) i
)
select r.id from resolved r
