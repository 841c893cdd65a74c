-- Write notices outside a commit: their ids and their moment come from the clock of the database.
insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id, consumer, detail)
select n.id, get_byte(uuid_send(n.id), 15), (select holdfast.clock()), n.org, n.code, n.kind, n.message, n.instance,
    n.consumer, n.detail
from (
    select holdfast.new_id() as id, u.*
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::jsonb[])
        as u(org, code, kind, message, instance, consumer, detail)
    offset 0  -- an id is made once
) n
