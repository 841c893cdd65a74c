-- Write one notice of a consumer's side: a handler that raised.
insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id, consumer, detail)
values (holdfast.new_id($1::smallint), $1::smallint, holdfast.clock(), $2::text, $3::text, $4::text, $5::text, $6::uuid, $7::text,
    $8::jsonb)
