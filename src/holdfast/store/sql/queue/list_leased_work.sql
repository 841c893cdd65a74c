-- Everything leased to one worker: what it does not know of comes from a commit whose answer was lost.
select t.instance_id, t.path, t.fence from holdfast.work t where t.worker = $1::uuid
