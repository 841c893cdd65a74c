-- Look after the rests of these instances from now on, or no more where there is no time to rest.
with gone as (
    delete from holdfast.stale_checks t using unnest($1::uuid[], $2::smallint[], $4::real[]) as u(instance, bucket, after)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and u.after is null
)
insert into holdfast.stale_checks (instance_id, bucket, org_id, after, due_at)
select u.instance, u.bucket, u.org, u.after, $5::timestamptz + u.after * interval '1 second'
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::real[]) as u(instance, bucket, org, after)
where u.after is not null
on conflict (instance_id, bucket) do update set after = excluded.after, due_at = least(stale_checks.due_at, excluded.due_at)
