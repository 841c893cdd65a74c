-- Forget runs that are a quarter of a year old.
delete from holdfast.upkeep_runs r where r.started_at < holdfast.clock() - interval '90 days'
