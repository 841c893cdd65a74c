-- Make sure that machines have their instances: pending rows, decided upon in the same transaction.
-- Where a consumer is missing, nothing is inserted. The caller sorts the rows by key and holds no lock yet: a taken key
-- may make it wait.
with n as (
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, input, idempotency_key, business_key,
        created_by, trace, data, status, version, state, created_at, updated_at)
    select u.id, u.bucket, u.org, u.definition, u.flow, u.flow_version, '{}', u.key, u.ref, u.created_by, u.trace, '{}',
        'pending', 0, '{}', (select holdfast.clock()), (select holdfast.clock())
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::real[], $12::text[], $13::text[], $14::boolean[])
        with ordinality as u(id, bucket, org, definition, flow, flow_version, key, ref, created_by, trace, stale,
            environment, name, is_told, number)
    where not u.is_told or exists (
        select from holdfast.consumers c
        where c.org_id = u.org and c.environment = u.environment and c.removed_at is null and c.takes_transitions
            and (c.definitions is null or u.name = any(c.definitions)))
    order by u.number
    on conflict do nothing
    returning id, bucket, org_id, created_at
)
insert into holdfast.stale_checks (instance_id, bucket, org_id, after, due_at)
select n.id, n.bucket, n.org_id, u.stale, n.created_at + u.stale * interval '1 second'
from unnest($1::uuid[], $11::real[]) as u(id, stale)
join n on n.id = u.id
where u.stale is not null
