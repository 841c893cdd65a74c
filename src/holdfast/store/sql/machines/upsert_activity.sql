-- Write the status of an activity over the one before; no row: it is frozen.
insert into holdfast.activities as t (id, instance_id, bucket, org_id, step_id, step_created_at, state, name, actor, status,
    data, created_at, updated_at)
select $1::uuid, $2::uuid, $3::smallint, $4::text, $5::uuid, $6::timestamptz, $7::text, $8::text, $9::text, $10::text,
    $11::jsonb, c.now, c.now
from (select holdfast.clock() as now) c
on conflict on constraint activities_name do update
    set status = excluded.status, data = coalesce(excluded.data, t.data), updated_at = greatest(excluded.updated_at, t.updated_at)
    where not t.frozen
returning t.id, t.instance_id, $12::int, t.state, t.name, t.actor, t.status, t.data, t.frozen, t.created_at, t.updated_at
