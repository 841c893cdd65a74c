-- One entry into a state of a machine: that of a number, or the present one.
select s.id, s.created_at, s.node, s.hop
from (
    select r.step_id, r.created_at from holdfast.step_receipts r
    where r.instance_id = $1::uuid and r.token = '0@' || $4::int::text and r.kind = 'forward' and r.run = 0
        and r.bucket = $2::smallint and r.org_id = $3::text
) r
left join lateral (
    select i.carried_at from holdfast.instances i where i.id = $1::uuid and i.bucket = $2::smallint limit 1
) i on true
cross join lateral (
    select s.id, s.created_at, s.node, s.hop from holdfast.steps s
    where s.instance_id = $1::uuid and s.created_at = any(array[r.created_at, i.carried_at]) and s.id = r.step_id
        and s.bucket = $2::smallint and s.behaviour in ('rest', 'end')
    order by s.created_at desc, s.opened_version desc, s.opened_ordinal desc limit 1
) s
