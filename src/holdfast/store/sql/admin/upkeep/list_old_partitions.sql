-- The months of a table that are past their time, and who still needs each.
select o.child, o.holder from holdfast.old_partitions($1::text, $2::timestamptz) o order by o.next
