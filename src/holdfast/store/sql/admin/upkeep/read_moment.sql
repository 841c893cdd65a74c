-- The database's time, and the moment that lies this many seconds before it.
select holdfast.clock(), holdfast.clock() - $1::float8 * interval '1 second'
