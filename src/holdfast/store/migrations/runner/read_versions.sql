-- Which migrations this database has, oldest first.
select number, name, checksum from holdfast.schema_version order by number
