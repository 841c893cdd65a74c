-- One migration at a time per database; the settings of the login must not reach into the files.
select
    pg_advisory_xact_lock(5208492604412),
    set_config('search_path', 'pg_catalog', true),
    set_config('statement_timeout', '0', true),
    set_config('client_min_messages', 'warning', true)
