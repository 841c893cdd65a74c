-- The consumer of a name; one that was removed does not count.
select c.id from holdfast.consumers c
where c.org_id = $1::text and c.environment = $2::text and c.name = $3::text and c.removed_at is null
