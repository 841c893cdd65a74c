-- A new database as a copy of another one.
create database {database} template {template} strategy {strategy}
