-- Write the notices of one moment.
insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id, consumer, detail)
select u.id, get_byte(uuid_send(u.id), 15), $9::timestamptz, u.org, u.code, u.kind, u.message, u.instance, u.consumer, u.detail
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::jsonb[])
    as u(id, org, code, kind, message, instance, consumer, detail)
