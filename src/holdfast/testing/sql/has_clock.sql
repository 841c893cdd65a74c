-- Whether this database has a movable clock.
select to_regclass('holdfast_testing.clock') is not null
