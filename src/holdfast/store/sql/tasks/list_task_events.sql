-- The history of one task in the order it happened, or a page of it.
select t.ordinal, t.type, t.actor, t.assignee, t.reason, t.detail, t.created_at
from holdfast.task_events t where t.task_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
    and t.ordinal > $4::int
order by t.ordinal limit $5::bigint
