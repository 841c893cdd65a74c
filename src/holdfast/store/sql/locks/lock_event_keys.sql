-- Serialise with senders of these keyed events before looking for early ones.
insert into holdfast.event_keys (org_id, event, key, bucket)
select u.org, u.event, u.key, u.bucket
from unnest($1::text[], $2::text[], $3::text[], $4::smallint[]) as u(org, event, key, bucket)
order by u.org, u.event, u.key
on conflict (org_id, event, key, bucket) do update set event = excluded.event
