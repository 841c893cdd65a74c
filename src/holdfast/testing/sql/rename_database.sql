-- A template gets its name when it is complete.
alter database {database} rename to {new_name}
