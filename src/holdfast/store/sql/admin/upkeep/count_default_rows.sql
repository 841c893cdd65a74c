-- How many rows lie in default partitions, because their month had none of its own when they came.
select coalesce(sum(a.default_rows), 0)::bigint from holdfast.partition_alarm() a
