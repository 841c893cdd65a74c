-- Remember when a key was used last, at most once a minute however many servers it is shown to.
update holdfast.api_keys k set last_used_at = (select holdfast.clock())
where k.prefix = any(array[$1::text])
    and coalesce(k.last_used_at <= (select holdfast.clock()) - interval '1 minute', true)
