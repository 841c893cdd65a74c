-- Remember where the next batch of a task goes on.
update holdfast.upkeep u set position = $2::uuid where u.task = $1::text
