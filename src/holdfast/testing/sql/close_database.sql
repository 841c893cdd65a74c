-- Nobody may connect to a template: a connection would keep it from being copied.
alter database {database} allow_connections false
