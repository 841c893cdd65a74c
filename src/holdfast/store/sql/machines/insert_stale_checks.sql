-- Look from then on whether these instances stand still; one that is looked at already keeps its time.
insert into holdfast.stale_checks (instance_id, bucket, org_id, after, due_at)
select u.instance, u.bucket, u.org, u.after, $5::timestamptz + make_interval(secs => u.after)
from unnest($1::uuid[], $2::smallint[], $3::text[], $4::real[]) as u(instance, bucket, org, after)
on conflict do nothing
