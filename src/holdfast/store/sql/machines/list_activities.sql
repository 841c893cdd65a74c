-- Activities of one instance in the order they were first told of, each with the number of its entry.
select t.id, t.instance_id, s.hop, t.state, t.name, t.actor, t.status, t.data, t.frozen, t.created_at, t.updated_at
from holdfast.activities t
left join lateral (
    select i.carried_at from holdfast.instances i where i.id = $1::uuid and i.bucket = $2::smallint limit 1
) i on true
left join lateral (
    select s.hop from holdfast.steps s
    where s.instance_id = $1::uuid and s.created_at = any(array[t.step_created_at, i.carried_at]) and s.id = t.step_id
        and s.bucket = $2::smallint
    limit 1
) s on true
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
    and ($4::uuid is null or t.id = $4::uuid) and ($5::uuid is null or t.id > $5::uuid)
order by row(t.id) limit $6::bigint
