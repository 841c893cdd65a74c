-- The tokens of one instance that have work under way or in a queue, with their fences.
select w.path, w.fence from holdfast.work w where w.instance_id = $1::uuid and w.bucket = $2::smallint
