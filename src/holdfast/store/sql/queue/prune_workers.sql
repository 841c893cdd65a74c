-- Forget workers that are long gone and hold nothing.
delete from holdfast.workers d
where d.lease_until < clock_timestamp() - interval '1 day'
    and (select w.worker from holdfast.work w where w.worker = d.id limit 1) is null
