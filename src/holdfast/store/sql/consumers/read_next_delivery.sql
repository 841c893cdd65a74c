-- Microseconds until the first fact of each consumer is due; a consumer without any is left out.
select u.consumer, (extract(epoch from d.next_due - (select holdfast.clock())) * 1000000)::bigint
from unnest($1::uuid[]) as u(consumer)
cross join lateral (
    select t.next_due from holdfast.ack_consumers t
    where t.consumer_id = u.consumer and t.next_due is not null
    order by t.next_due limit 1
) d
