-- Give the oldest month in a default partition a partition of its own.
select holdfast.move_default_month()
