-- What the engine would resume one instance from, and the task a person has with it.
select t.instance_id, t.status, t.state_version, t.snapshot_format, t.waiting_kind, t.waiting_token, t.waiting_until,
    t.active_step,
    (select k.id from holdfast.tasks k where k.instance_id = $1::uuid and num_nulls(k.closed_at) = 1 order by k.id limit 1),
    t.resume_pointer, t.last_signal, t.last_error_code, t.last_error, t.last_executed_by, t.last_executed_at
from holdfast.runtime t where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.org_id = $3::text
