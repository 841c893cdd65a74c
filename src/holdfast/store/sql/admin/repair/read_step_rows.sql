-- The step rows of one instance from its newest checkpoint on, as replay reads them.
select t.id, t.node, t.behaviour, t.path, t.hop, t.kind, t.run, t.entity_version, t.opened_version, t.opened_ordinal,
    t.created_at, t.cause, t.status, t.outcome, t.chosen_edge_ids::text, t.input::text, t.output::text, t.error::text,
    t.detail::text, t.closing::text, t.calls, t.fence, t.closed_version, t.closed_ordinal
from holdfast.steps t where t.instance_id = $1::uuid and t.bucket = $2::smallint
    and t.created_at >= coalesce($3::timestamptz, '-infinity')
