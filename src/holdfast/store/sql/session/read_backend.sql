-- Who serves this connection, and whether it takes writes: a pooler hands out process ids of its own, a standby refuses.
select pg_backend_pid(), current_setting('transaction_read_only') = 'on'
