-- A migration was applied.
insert into holdfast.schema_version (number, name, checksum) values (%(number)s, %(name)s, %(checksum)s)
