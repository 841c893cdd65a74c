-- The visits of one instance that were opened last, newest first: by date, which never goes back, and revision.
select t.id, t.node, t.behaviour, t.path, t.hop, t.kind, t.run, t.status, t.outcome, t.cause, t.calls, t.input, t.output,
    t.error, t.chosen_edge_ids, t.detail, t.closing, t.opened_version, t.opened_ordinal, t.closed_version, t.closed_ordinal,
    t.opened_by, t.closed_by, t.created_at, t.closed_at, t.receipt_key, t.entity_version
from holdfast.steps t where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
    and t.outcome is distinct from 'carried'
order by t.created_at desc, t.opened_version desc, t.opened_ordinal desc limit $4::bigint
