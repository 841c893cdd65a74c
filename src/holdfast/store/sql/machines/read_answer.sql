-- The answer that stands with the receipt of a trigger.
select r.answer from holdfast.outbox_receipts r
where r.instance_id = $1::uuid and r.source = 'signal' and r.key = $3::text and r.bucket = $2::smallint and r.org_id = $4::text
