-- As pin_transaction, in a settled session: the worker's role and a limit to every wait are left; and the clock.
select set_config('role', 'holdfast_worker', true), set_config('lock_timeout', $1::text, true), holdfast.clock()
