-- The consumer of a name, and whether it was given this fact; one that was removed does not count.
select c.id, exists (
    select from holdfast.ack_consumers t
    where t.instance_id = $4::uuid and t.bucket = $5::smallint and t.created_at = $6::timestamptz and t.ack_id = $7::uuid
        and t.consumer_id = c.id)
from holdfast.consumers c
where c.org_id = $1::text and c.environment = $2::text and c.name = $3::text and c.removed_at is null
