-- The last entry of a machine into a state.
select s.id, s.created_at, s.node, s.hop
from holdfast.steps s
where s.instance_id = $1::uuid and s.bucket = $2::smallint and s.org_id = $3::text and s.path = '0' and s.kind = 'forward'
    and s.behaviour in ('rest', 'end')
order by s.created_at desc, s.opened_version desc, s.opened_ordinal desc limit 1
