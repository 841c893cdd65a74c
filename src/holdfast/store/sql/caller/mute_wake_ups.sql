-- No NOTIFY for the rest of the caller's transaction: its on-commit hook wakes the workers.
select set_config('holdfast.notify', 'off', true)
