-- A page of the audit trail of one instance, in the order of list_events.
select t.version, t.ordinal, t.type, t.node, t.token, t.actor, t.detail, t.created_at
from holdfast.events t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
    and (t.version, t.created_at, t.ordinal) > ($5::bigint, $4::timestamptz, $6::smallint)
order by t.version, t.created_at, t.ordinal limit $7::bigint
