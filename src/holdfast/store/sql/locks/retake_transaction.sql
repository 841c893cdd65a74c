-- After a user's function: is this still the transaction it was lent? Its limits are not ours.
select coalesce(current_setting('holdfast.call', true), '') = $1::text,
    set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true)
