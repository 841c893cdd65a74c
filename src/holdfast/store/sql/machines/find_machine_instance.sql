-- The instance a trigger means: the one that knows its request, else the open one, else the newest of the blueprint.
-- `$6`: only of this blueprint, which a re-run and a migration have through their definition. `$7`: one that is over will do.
with t as materialized (
    select i.id, i.completed_at is not null as is_over, i.idempotency_key = $5::text as is_of_key,
        $6::boolean and exists (
            select from holdfast.definitions d
            where d.id = i.definition_id and d.compiled #>> '{config,blueprint}' = split_part($5::text, ':', 1)) as is_of_blueprint,
        $4::text is not null and exists (
            select from holdfast.outbox_receipts r
            where r.instance_id = any(array[i.id]) and r.source = 'signal' and r.key = $4::text and r.bucket = i.bucket) as knows
    from holdfast.instances i
    where i.org_id = $1::text and i.business_key = $3::text and i.flow = $2::text
)
select f.id, (select count(*) from t)
from (select 1) always
left join lateral (
    select t.id from t
    where t.knows or t.is_of_key or t.is_of_blueprint or $7::boolean or (not t.is_over and not $6::boolean)
    order by t.knows desc, t.is_over, t.is_of_blueprint desc, t.id desc
    limit 1
) f on true
