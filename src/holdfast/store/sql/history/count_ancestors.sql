-- How many instances stand above one: its parent, the parent's parent …; counted no further than asked for.
with recursive above as (
    select $1::uuid as id, $2::smallint as bucket, 0 as level
    union all
    select t.parent_id, a.bucket, a.level + 1
    from above a
    join holdfast.instances t on t.id = any(array[a.id]) and t.bucket = a.bucket
    where num_nulls(t.parent_id) = 0 and a.level < $3::int
)
select max(a.level) from above a
