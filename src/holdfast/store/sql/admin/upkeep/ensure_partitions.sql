-- Create the months that are missing ahead.
select p from holdfast.ensure_partitions() p
