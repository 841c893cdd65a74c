-- What pin_transaction sets for the plans of hot statements, once for a connection that only runs those.
select set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),
    set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false),
    set_config('enable_bitmapscan', 'off', false), set_config('jit', 'off', false)
