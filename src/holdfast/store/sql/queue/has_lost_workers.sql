-- Has a worker ended lately without leaving in order? Longer ago than supervisors wait before they start another one.
select exists (
    select from holdfast.workers d
    where d.stopped_at is null and d.lease_until <= clock_timestamp()
        and d.lease_until > clock_timestamp() - interval '10 minutes'
)
