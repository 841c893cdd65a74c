-- Make every snapshot held in memory old: the instance was changed.
update holdfast.instances t set version = t.version + 1, updated_at = $4::timestamptz
where t.id = $1::uuid and t.bucket = $2::smallint and t.version = $3::bigint
returning t.version
