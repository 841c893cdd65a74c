-- Take a task that is due, for as long as its runner may need: others leave it alone until then.
update holdfast.upkeep u set due_at = (select holdfast.clock()) + $3::real * interval '1 second', runner = $2::text
where u.task = (
    select t.task from holdfast.upkeep t
    where t.task = any($1::text[]) and t.due_at <= (select holdfast.clock())
    order by t.due_at limit 1
    for update skip locked
)
returning u.task
