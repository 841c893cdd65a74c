-- Where the last batch of a task stopped, if it did not come to the end.
select u.position from holdfast.upkeep u where u.task = $1::text
