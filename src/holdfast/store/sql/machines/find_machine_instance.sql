-- The instance a trigger means: the one that knows its request, else the open one, else the newest of the blueprint.
select t.id, t.definition_id, t.completed_at is not null
from (
    select i.id, i.definition_id, i.completed_at, i.idempotency_key,
        $4::text is not null and exists (
            select from holdfast.outbox_receipts r
            where r.instance_id = any(array[i.id]) and r.source = 'signal' and r.key = $4::text and r.bucket = i.bucket) as knows
    from holdfast.instances i
    where i.org_id = $1::text and i.business_key = $3::text and i.flow = $2::text
) t
where t.knows or t.completed_at is null and (not $6::boolean or t.idempotency_key = $5::text) or t.idempotency_key = $5::text
order by t.knows desc, t.completed_at is null desc, t.id desc
limit 1
