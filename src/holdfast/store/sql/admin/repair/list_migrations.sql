-- What the migrations of one instance recorded: the versions it came from and went to.
select t.detail::text from holdfast.steps t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.kind = 'control' and t.node = '@migrate'
