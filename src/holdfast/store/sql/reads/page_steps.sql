-- A page of the visits of one instance, in the order they were opened.
-- One that was carried is told by its newest row alone.
-- The guard instances_version lets no date go back, so dates and revisions order alike, and the key has the dates.
select t.id, t.node, t.behaviour, t.path, t.hop, t.kind, t.run, t.status, t.outcome, t.cause, t.calls, t.input, t.output,
    t.error, t.chosen_edge_ids, t.detail, t.closing, t.opened_version, t.opened_ordinal, t.closed_version, t.closed_ordinal,
    t.opened_by, t.closed_by, t.created_at, t.closed_at, t.receipt_key, t.entity_version
from holdfast.steps t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text and t.created_at >= $4::timestamptz
    and (t.created_at, t.opened_version, t.opened_ordinal) > ($4::timestamptz, $5::bigint, $6::smallint)
    and t.outcome is distinct from 'carried'
order by t.created_at, t.opened_version, t.opened_ordinal limit $7::bigint
