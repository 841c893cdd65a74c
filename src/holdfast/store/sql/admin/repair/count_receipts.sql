-- How many visits of nodes an instance has receipts for since its newest checkpoint.
select count(*) from holdfast.step_receipts r where r.instance_id = $1::uuid and r.bucket = $2::smallint
    and r.created_at > coalesce($3::timestamptz, '-infinity')
