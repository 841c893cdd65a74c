-- What the steps of one instance answered: among its newest visits, the newest completed one of each step, and migrations.
-- Names are those of then. A migration may give one node's name to another, so names are told apart by their era: the
-- number of migrations that came after the visit.
select distinct on (v.node, v.era) v.node, v.opened_version, v.opened_ordinal, v.output,
    case when v.node = '@migrate' then v.detail end
from (
    select t.*, count(*) filter (where t.node = '@migrate') over newer as era
    from (
        select t.node, t.behaviour, t.kind, t.status, t.output, t.detail, t.opened_version, t.opened_ordinal
        from holdfast.steps t where t.instance_id = $2::uuid and t.bucket = $3::smallint and t.org_id = $4::text
        order by t.created_at desc, t.opened_version desc, t.opened_ordinal desc limit $5::bigint
    ) t
    window newer as (order by t.opened_version desc, t.opened_ordinal desc)
) v
where v.node = '@migrate' or (v.kind = 'forward' and v.status in ('completed', 'confirmed') and v.output is not null
    and v.behaviour = any($1::text[]))
order by v.node, v.era, v.opened_version desc, v.opened_ordinal desc
