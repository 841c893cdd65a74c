-- A hint that handlers of these instances may have to stop; without a name it means those of any.
select pg_notify('holdfast_stop', $1::text)
