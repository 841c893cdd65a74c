-- End open steps; each must still be open.
with w as (
    update holdfast.steps t set status = u.status, outcome = u.outcome, chosen_edge_ids = u.chosen, output = u.output,
        error = coalesce(u.error, t.error), closing = u.closing, closed_version = u.version, closed_ordinal = u.ordinal,
        closed_by = u.actor, closed_at = $14::timestamptz
    from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::text[], $6::text[], $7::jsonb[], $8::jsonb[],
        $9::jsonb[], $10::jsonb[], $11::bigint[], $12::smallint[], $13::text[])
        as u(instance, bucket, at, id, status, outcome, chosen, output, error, closing, version, ordinal, actor)
    where t.instance_id = any(array[u.instance]) and t.bucket = u.bucket and t.created_at = u.at and t.id = u.id
        and t.closed_at is null
    returning 1
)
select holdfast.expect('close_steps', count(*), $15::bigint) from w
