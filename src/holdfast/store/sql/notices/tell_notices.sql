-- Write notices outside a commit: their ids and their moment come from the clock of the database.
-- The ids have its microseconds, too, so that notices of one millisecond are in their order.
insert into holdfast.notices (id, bucket, created_at, org_id, code, kind, message, instance_id, consumer, detail)
select n.id, get_byte(uuid_send(n.id), 15), n.now, n.org, n.code, n.kind, n.message, n.instance, n.consumer, n.detail
from (
    select encode(set_byte(set_byte(
            overlay(uuid_send(gen_random_uuid()) placing substring(int8send(c.micros / 1000) from 3) from 1 for 6),
            6, 112 + c.part / 256), 7, c.part % 256), 'hex')::uuid as id,
        c.now, u.*
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::jsonb[])
        as u(org, code, kind, message, instance, consumer, detail)
    cross join (
        select y.*, (y.micros % 1000 * 4096 / 1000)::int as part
        from (select x.now, (extract(epoch from x.now) * 1000000)::bigint as micros
            from (select holdfast.clock() as now) x) y
    ) c
    offset 0  -- an id is made once
) n
