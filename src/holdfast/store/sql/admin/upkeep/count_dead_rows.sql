-- How many dead rows the queues hold, as far as the statistics know.
select coalesce(max(s.n_dead_tup), 0) from pg_stat_user_tables s
where s.schemaname = 'holdfast' and s.relname in ('work', 'signals', 'timers', 'statistics_deltas')
