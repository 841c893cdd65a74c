-- A hint that something may be ready; the payload is constant so that hints of one transaction fold into one.
select pg_notify('holdfast', '')
