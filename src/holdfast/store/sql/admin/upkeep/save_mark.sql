-- Remember where the next batch of a task goes on, and what its passes leave.
update holdfast.upkeep u set mark = $2::jsonb where u.task = $1::text
