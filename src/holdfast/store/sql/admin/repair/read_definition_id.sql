-- Which definition an instance is pinned to.
select t.definition_id from holdfast.instances t
where t.id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
