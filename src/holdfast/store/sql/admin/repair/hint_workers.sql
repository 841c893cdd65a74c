-- Hint that there is something to do once this transaction commits.
select pg_notify('holdfast', '')
