-- Before a user's function: the login's own role again, its organisation, limits in milliseconds, and a mark of ours.
select set_config('role', 'none', true), set_config('holdfast.org', $1::text, true),
    set_config('holdfast.call', $2::text, true), set_config('statement_timeout', $3::text, true),
    set_config('lock_timeout', $4::text, true), set_config('idle_in_transaction_session_timeout', $5::text, true)
