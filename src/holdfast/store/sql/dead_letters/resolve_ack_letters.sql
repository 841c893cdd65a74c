-- Settle the dead letters about deliveries that are not failed any more: these are sent again, or were processed after all.
-- A row without a fact is for all of an instance that no other row is about.
with meant as materialized (
    select distinct on (t.id) t.id, t.bucket, u.resolution, u.actor, u.why
    from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[])
        as u(instance, bucket, ack, consumer, resolution, actor, why)
    join holdfast.dead_letters t on t.instance_id = any(array[u.instance]) and t.bucket is not distinct from u.bucket
        and num_nulls(t.resolved_at) = 1 and t.source = any(array['ack'])
        and (u.ack is null or (t.envelope ->> 'ack_guid')::uuid = u.ack
            and (t.envelope ->> 'consumer_id')::uuid = u.consumer)
    where not exists (
        select from holdfast.ack_consumers d
        where d.instance_id = any(array[t.instance_id]) and d.ack_id = (t.envelope ->> 'ack_guid')::uuid
            and d.created_at = timestamptz '2000-01-01 00:00:00+00' + (t.envelope ->> 'at')::bigint * interval '1 microsecond'
            and d.consumer_id = (t.envelope ->> 'consumer_id')::uuid and d.bucket = t.bucket and d.status = 'failed'
    )
    order by t.id, u.ack is null
), resolved as (
    update holdfast.dead_letters t
    set resolved_at = $8::timestamptz, resolution = m.resolution, resolved_by = m.actor, resolved_why = m.why
    from meant m
    where t.id = any(array[m.id]) and t.bucket = m.bucket and num_nulls(t.resolved_at) = 1
    returning t.id, t.bucket, t.org_id, t.instance_id, t.reason, t.resolution, t.resolved_by, t.resolved_why
)
insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, actor, detail)
select r.instance_id, r.bucket, holdfast.date_beside(r.instance_id, r.bucket, i.version, i.updated_at, $8::timestamptz),
    i.version, 32000 + row_number() over (partition by r.instance_id),
    r.org_id, 'dead_letter_' || r.resolution, r.resolved_by,
    jsonb_build_object('letter', r.id, 'code', r.reason, 'why', r.resolved_why)
from resolved r
cross join lateral (
    select t.version, t.updated_at from holdfast.instances t where t.id = any(array[r.instance_id]) and t.bucket = r.bucket limit 1
) i
