-- Tell a parent again how its sub-flow ended.
insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
select $1::uuid, md5(c.id::text || 'told again' || $4::bigint)::uuid, $2::smallint, c.org_id, 'child_finished',
    jsonb_build_object('token', c.parent_token, 'child', replace(c.id::text, '-', ''), 'status', c.status,
        'output', c.data, 'error', case when c.status <> 'completed' then c.last_error end), $5::timestamptz
from holdfast.instances c
where c.id = $3::uuid and c.bucket = get_byte(uuid_send($3::uuid), 15) and c.completed_at is not null
on conflict do nothing
returning id
