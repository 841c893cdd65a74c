-- The newest migration that was applied.
select coalesce(max(v.number), 0) from holdfast.schema_version v
