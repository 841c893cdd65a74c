-- Tell instances of the gates that no consumer takes: nothing would ever open them.
-- Its deliveries are there by now, in this very transaction, so no consumer can be overlooked that comes or goes meanwhile.
insert into holdfast.signals (instance_id, id, bucket, org_id, kind, payload, ripe_at)
select u.instance, holdfast.new_id(u.bucket), u.bucket, u.org, 'gate', jsonb_build_object('ack', u.id), $5::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[]) as u(instance, bucket, id, org)
where not exists (
    select from holdfast.ack_consumers d
    where d.instance_id = any(array[u.instance]) and d.created_at = $5::timestamptz and d.ack_id = u.id
        and d.bucket = u.bucket)
