-- Change the status of an activity, freeze it or unfreeze it; no row: it is not there, or frozen.
update holdfast.activities t set status = coalesce($5::text, t.status), data = coalesce($6::jsonb, t.data),
    frozen = coalesce($7::boolean, t.frozen), updated_at = greatest(holdfast.clock(), t.updated_at)
where t.instance_id = $1::uuid and t.id = $2::uuid and t.bucket = $3::smallint and t.org_id = $4::text
    and (not t.frozen or $7::boolean is false)
returning t.id
