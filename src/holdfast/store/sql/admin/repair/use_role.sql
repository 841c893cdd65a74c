-- Take the role that this transaction needs.
select set_config('role', $1::text, true)
