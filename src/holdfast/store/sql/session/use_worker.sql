-- Take the worker's role for this transaction.
select set_config('role', 'holdfast_worker', true)
