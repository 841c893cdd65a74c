-- Whether anything was ever started in this database.
select exists (select from holdfast.instances)
