-- Remove events by key that nobody may receive any more.
select holdfast.expire_key_events($1::int)
