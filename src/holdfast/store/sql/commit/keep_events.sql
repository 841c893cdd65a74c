-- Keep events that came before anything waits for them.
insert into holdfast.inbox (instance_id, bucket, id, org_id, event, payload, actor, created_at, expires_at, node)
select u.* from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::jsonb[], $7::jsonb[],
    $8::timestamptz[], $9::timestamptz[], $10::text[])
    as u(instance, bucket, id, org, event, payload, actor, created_at, expires_at, node)
on conflict do nothing
