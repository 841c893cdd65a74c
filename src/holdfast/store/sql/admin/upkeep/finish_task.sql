-- Say when a task is due again, and how it went.
update holdfast.upkeep u set due_at = (select holdfast.clock()) + $2::real * interval '1 second',
    finished_at = (select holdfast.clock()), error = $3::text
where u.task = $1::text
