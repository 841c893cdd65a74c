-- Tables with many dead rows: more than live ones, or most of what is worth a look.
select s.relname::text, s.n_dead_tup, s.n_live_tup, greatest(s.last_autovacuum, s.last_vacuum)
from pg_stat_user_tables s
where s.schemaname = 'holdfast' and s.n_dead_tup >= $1::bigint and s.n_dead_tup * 2 >= s.n_live_tup
order by s.n_dead_tup desc limit 20
