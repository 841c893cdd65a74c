-- Limit how long this transaction may wait and work, and keep it on indexes; for this transaction only, as poolers want it.
select set_config('lock_timeout', '2s', true), set_config('statement_timeout', $1::text, true),
    set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)
