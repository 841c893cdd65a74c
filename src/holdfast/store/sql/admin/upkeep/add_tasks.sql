-- Make sure that every task has its row; a new one is due at once.
insert into holdfast.upkeep (task, due_at)
select t.task, holdfast.clock() from unnest($1::text[]) as t(task) order by t.task
on conflict do nothing
