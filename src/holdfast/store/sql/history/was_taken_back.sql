-- One row if a rollback has ended the instance and no save point kept it from anything.
select t.instance_id from holdfast.events t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.type in ('rollback_planned', 'rollback_completed')
group by t.instance_id
having bool_or(t.type = 'rollback_completed') and bool_and(t.detail ->> 'save_point' is null)
