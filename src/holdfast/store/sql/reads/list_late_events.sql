-- The lines beside the decisions of an instance that may have come behind a place of its trail after that place was read.
-- They are written without the instance's lock, so later ones may be seen first; some seconds and some revisions bound it.
select t.version, t.ordinal, t.type, t.node, t.token, t.actor, t.detail, t.created_at
from holdfast.events t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
    and t.version > $5::bigint - 200 and t.version <= $5::bigint
    and (t.version, t.created_at, t.ordinal) <= ($5::bigint, $4::timestamptz, $6::smallint)
    and t.ordinal >= 1000 and t.created_at >= $7::timestamptz
order by t.version, t.created_at, t.ordinal limit $8::bigint
