-- A signal could not be applied: remember how often and why, in a commit of its own.
-- It goes behind those of other instances, and takes the younger ones of its own along: their order stays. Who has the
-- instance now may be applying it: nothing is counted then, and it is tried again.
with held as materialized (
    select u.* from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::int[])
        as u(instance, bucket, id, error, tried)
    join holdfast.instances i on i.id = any(array[u.instance]) and i.bucket = u.bucket
    for no key update of i skip locked
), placed as materialized (
    select h.instance, h.bucket, s.id, s.id = h.id as is_it, h.error, h.tried,
        row_number() over (partition by h.instance, h.id order by s.ripe_at, s.id) as place
    from held h
    join holdfast.signals s on s.instance_id = any(array[h.instance]) and s.bucket = h.bucket
), moved as (
    update holdfast.signals t set ripe_at = (select holdfast.clock()) + p.place * interval '1 microsecond',
        attempts = t.attempts + case when p.is_it then p.tried else 0 end,
        error = case when p.is_it then p.error else t.error end
    from placed p
    where t.instance_id = any(array[p.instance]) and t.bucket = p.bucket and t.id = p.id
    returning t.instance_id, t.id, t.attempts, p.is_it
)
select m.instance_id, m.id, m.attempts from moved m where m.is_it
