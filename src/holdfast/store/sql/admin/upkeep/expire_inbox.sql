-- Remove early events that nothing ever waited for.
select holdfast.expire_inbox($1::int)
