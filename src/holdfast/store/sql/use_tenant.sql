-- Read as one organisation: the tenant role and its setting, for this transaction only.
select set_config('role', 'holdfast_tenant', true), set_config('holdfast.org', $1::text, true)
