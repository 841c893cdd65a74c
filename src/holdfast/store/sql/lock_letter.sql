-- Whether a dead letter is still open; nobody else settles it before this transaction ends.
select d.id from holdfast.dead_letters d
where d.id = $1::uuid and d.bucket = $2::smallint and d.org_id is not distinct from $3::text and num_nulls(d.resolved_at) = 1
for update
