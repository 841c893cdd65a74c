-- Whether the table of applied migrations exists.
select to_regclass('holdfast.schema_version') is not null
