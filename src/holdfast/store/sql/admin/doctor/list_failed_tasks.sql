-- Tasks of the upkeep whose last run failed.
select u.task, u.error from holdfast.upkeep u where u.error is not null order by u.task
