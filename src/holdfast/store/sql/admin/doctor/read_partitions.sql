-- Rows without a month of their own, and how many months are prepared, per table.
select a.table_name, a.default_rows, a.months_ahead from holdfast.partition_alarm() a
