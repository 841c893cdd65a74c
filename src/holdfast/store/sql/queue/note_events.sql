-- Write into the audit trail what happened beside the decisions of an instance: a refusal, an expiry, an intervention.
insert into holdfast.events (instance_id, bucket, created_at, version, ordinal, org_id, type, actor, detail)
select i.id, i.bucket, holdfast.date_beside(i.id, i.bucket, i.version, i.updated_at, (select holdfast.clock())), i.version,
    32100 + u.place % 600, i.org_id, u.type, u.actor, u.detail
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::jsonb[]) with ordinality
    as u(instance, bucket, type, actor, detail, place)
cross join lateral (
    select t.id, t.bucket, t.version, t.org_id, t.updated_at from holdfast.instances t
    where t.id = any(array[u.instance]) and t.bucket = u.bucket
    limit 1
) i
