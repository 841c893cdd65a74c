-- Read as one organisation: the tenant role, its setting, and one plan for each read, for this transaction only.
select set_config('role', 'holdfast_tenant', true), set_config('holdfast.org', $1::text, true),
    set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)
