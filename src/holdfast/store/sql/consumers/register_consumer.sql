-- Register a consumer, or change its settings; one that was removed comes back. New ones are held until they have their past.
-- One that another subject owns stays as it is, unless the caller may change any.
with c as (
    insert into holdfast.consumers as t (id, bucket, org_id, environment, name, way, definitions, states, events, hooks,
        takes_transitions, takes_hooks, critical, ttl, max_attempts, in_flight, target, owner, since, filled_to,
        registered_at, updated_at)
    select holdfast.new_id(holdfast.bucket_of($5::text, $6::text || '/' || $7::text)),
        holdfast.bucket_of($5::text, $6::text || '/' || $7::text), $5::text, $6::text, $7::text, $8::text,
        case when $9::boolean then $1::text[] end, case when $10::boolean then $2::text[] end,
        case when $11::boolean then $3::text[] end, case when $12::boolean then $4::text[] end,
        $13::boolean, $14::boolean, $15::boolean, $16::real, $17::int, $18::int, $19::jsonb, $20::text,
        coalesce($21::timestamptz, (select holdfast.clock())), '{"phase": "wait"}', (select holdfast.clock()),
        (select holdfast.clock())
    on conflict (org_id, environment, name, bucket) do update set way = excluded.way, definitions = excluded.definitions,
        states = excluded.states, events = excluded.events, hooks = excluded.hooks,
        takes_transitions = excluded.takes_transitions, takes_hooks = excluded.takes_hooks, critical = excluded.critical,
        ttl = excluded.ttl, max_attempts = excluded.max_attempts, in_flight = excluded.in_flight, target = excluded.target,
        owner = case when num_nulls(t.removed_at) = 1 then coalesce(t.owner, excluded.owner) else excluded.owner end, updated_at = excluded.updated_at,
        since = case when num_nulls(t.removed_at) = 1 then t.since else excluded.since end,
        filled_to = case when num_nulls(t.removed_at) = 1 then t.filled_to else excluded.filled_to end,
        swept_to = case when num_nulls(t.removed_at) = 1 then t.swept_to end, removed_at = null, removed_by = null
    where ($22::boolean or num_nulls(t.removed_at) = 0 or t.owner = $20::text) and (t.way, t.definitions, t.states, t.events, t.hooks, t.takes_transitions, t.takes_hooks, t.critical, t.ttl,
            t.max_attempts, t.in_flight, t.target, t.removed_at)
        is distinct from (excluded.way, excluded.definitions, excluded.states, excluded.events, excluded.hooks,
            excluded.takes_transitions, excluded.takes_hooks, excluded.critical, excluded.ttl, excluded.max_attempts,
            excluded.in_flight, excluded.target, null)
    returning t.id, t.bucket, t.org_id
)
insert into holdfast.consumer_beats (consumer_id, bucket, org_id, beat_at)
select c.id, c.bucket, c.org_id, clock_timestamp() from c
on conflict do nothing
