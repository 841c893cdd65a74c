-- A page of the unfinished instances of one flow, by id: those on one version, or those that are not on another.
select x.*
from unnest(array['pending', 'running', 'suspended', 'dlq', 'rolling_back']) s(status)
cross join lateral (
    select t.id, t.version, t.org_id, t.definition_id, t.flow, t.flow_version, t.status, t.reason, t.state, '{}'::jsonb,
        t.entity_version, t.parent_id, t.parent_token, t.trace, null::jsonb, t.created_at, t.created_by,
        t.attributes ->> 'partition_id', t.attributes ->> 'correlation_id', t.updated_at
    from holdfast.instances t
    where t.org_id = $1::text and t.status = s.status and t.status <> 'completed' and t.flow = $2::text
        and ($3::int is null or t.flow_version = $3::int) and ($4::int is null or t.flow_version <> $4::int)
        and t.id > case when $5::uuid is null then '00000000-0000-0000-0000-000000000000' else $5::uuid end
    order by t.id limit $6::bigint
) x
order by x.id limit $6::bigint
