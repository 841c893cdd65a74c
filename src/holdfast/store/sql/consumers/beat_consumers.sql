-- Note that consumers are alive, all of a process in one statement; the real clock, for no test moves what is alive.
with b as materialized (
    select x.consumer_id, x.bucket
    from unnest($1::uuid[], $2::smallint[]) as u(consumer, bucket)
    cross join lateral (
        select t.consumer_id, t.bucket from holdfast.consumer_beats t
        where t.consumer_id = u.consumer and t.bucket = u.bucket
        limit 1
        for update skip locked
    ) x
)
update holdfast.consumer_beats t set beat_at = clock_timestamp()
from b where t.consumer_id = any(array[b.consumer_id]) and t.bucket = b.bucket
returning t.consumer_id
