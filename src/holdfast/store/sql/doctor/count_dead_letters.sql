-- How many dead letters are open, counted no further than matters.
select count(*) from (select from holdfast.dead_letters d where d.resolved_at is null limit $1::bigint) x
