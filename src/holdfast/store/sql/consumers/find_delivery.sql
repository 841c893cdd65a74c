-- Whether there is a delivery, open or closed.
select t.status from holdfast.ack_consumers t
where t.instance_id = $1::uuid and t.bucket = $2::smallint and t.created_at = $3::timestamptz and t.ack_id = $4::uuid
    and t.consumer_id = $5::uuid
