-- As pin_transaction, for a commit that took no locks beforehand: it waits for nobody's for long, and reads the clock.
select set_config('role', 'holdfast_worker', true), set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('jit', 'off', true), set_config('lock_timeout', '100ms', true), holdfast.clock()
