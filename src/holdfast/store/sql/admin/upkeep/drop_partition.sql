-- Drop one month that nobody needs.
select holdfast.drop_partition($1::text, $2::text, $3::timestamptz)
