-- The databases whose names begin like this.
select datname from pg_catalog.pg_database where starts_with(datname, %(prefix)s) order by datname
