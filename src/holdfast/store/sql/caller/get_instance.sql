-- One instance as the caller's transaction sees it, as JSON so that no adapter of the caller has a say.
select holdfast.get($1::uuid, $2::text)::text
