-- Write notices for operators.
insert into holdfast.notices (id, bucket, org_id, code, kind, message, instance_id, consumer, detail, created_at)
select u.*, $10::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::text[], $9::jsonb[])
    as u(id, bucket, org, code, kind, message, instance, consumer, detail)
