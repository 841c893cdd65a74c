-- Write the rows of visited nodes: open ones, and those that were decided at once.
insert into holdfast.steps (instance_id, bucket, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
    receipt_key, opened_version, opened_ordinal, opened_by, cause, status, input, detail, calls, fence, outcome,
    chosen_edge_ids, output, error, closing, closed_version, closed_ordinal, closed_by, closed_at, created_at)
select u.*, case when u.closed_version is not null then $30::timestamptz end, $30::timestamptz
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[], $9::text[],
    $10::smallint[], $11::bigint[], $12::bytea[], $13::bigint[], $14::smallint[], $15::text[], $16::text[], $17::text[],
    $18::jsonb[], $19::jsonb[], $20::int[], $21::bigint[], $22::text[], $23::jsonb[], $24::jsonb[], $25::jsonb[],
    $26::jsonb[], $27::bigint[], $28::smallint[], $29::text[])
    as u(instance, bucket, id, org, node, behaviour, path, hop, kind, run, entity_version, receipt_key, opened_version,
        opened_ordinal, opened_by, cause, status, input, detail, calls, fence, outcome, chosen, output, error, closing,
        closed_version, closed_ordinal, closed_by)
