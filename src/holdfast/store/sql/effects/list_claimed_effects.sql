-- Every effect leased to one worker: what it does not know of comes from a claim whose answer was lost.
select t.instance_id, t.created_at, t.id, t.fence from holdfast.effects t
where t.status = 'processing' and t.worker = $1::uuid
