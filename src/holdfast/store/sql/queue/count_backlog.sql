-- How many signals, effects and dead letters wait, and how many instances stand still, each counted up to a limit.
select
    (select count(*) from (select from holdfast.signals s order by s.ripe_at limit $1::bigint) q),
    (select count(*) from (
        select from holdfast.effects e where e.status in ('pending', 'failed') order by e.next_attempt_at limit $1::bigint) q),
    (select count(*) from (
        select from holdfast.dead_letters d where d.resolved_at is null order by d.org_id, d.id limit $1::bigint) q),
    (select count(*) from (
        select from holdfast.instances i where i.status = 'suspended' order by i.completed_at limit $1::bigint) q),
    (select count(*) from (
        select from holdfast.instances i where i.status = 'dlq' order by i.completed_at limit $1::bigint) q)
