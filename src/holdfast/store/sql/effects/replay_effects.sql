-- Dead effects get as many attempts again as they had at first; the letter is resolved and the audit trail says by whom.
with letters as (
    update holdfast.dead_letters l set resolved_at = (select holdfast.clock()), resolution = 'replayed',
        resolved_by = $4::text
    from (select x.* from unnest($1::uuid[], $2::smallint[]) as x(id, bucket) order by x.id) u
    where l.id = any(array[u.id]) and l.bucket = u.bucket and l.org_id = $3::text and l.source = 'effect'
        and num_nulls(l.resolved_at) = 1
    returning l.id, l.bucket, l.instance_id, (l.envelope ->> 'created_at')::timestamptz as born
), again as (
    update holdfast.effects t set status = 'pending', completed_at = null, next_attempt_at = (select holdfast.clock()),
        max_attempts = t.attempts + holdfast.effect_attempts(t.payload)
    from letters l
    where t.instance_id = any(array[l.instance_id]) and t.created_at = l.born and t.id = l.id and t.bucket = l.bucket
    returning t.*
), noted as (
    insert into holdfast.events (instance_id, bucket, org_id, version, ordinal, type, token, actor, detail, created_at)
    select a.instance_id, a.bucket, a.org_id, i.version, 1000 + row_number() over (order by a.id), 'effect_replayed', a.token,
        coalesce($4::text, 'system'), jsonb_strip_nulls(jsonb_build_object('effect', encode(uuid_send(a.id), 'hex'),
            'type', a.effect_type, 'reason', $5::text)),
        holdfast.date_beside(i.id, i.bucket, i.version, i.updated_at, (select holdfast.clock()))
    from again a
    join holdfast.instances i on i.id = any(array[a.instance_id]) and i.bucket = a.bucket
)
select a.id, a.instance_id from again a
