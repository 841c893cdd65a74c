-- Where the last batch of a task stopped, and what its last whole pass left.
select u.mark::text from holdfast.upkeep u where u.task = $1::text
