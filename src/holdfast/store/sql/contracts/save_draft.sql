-- Save a draft over the one with a tag, over any where no tag is given; raises where it is not there any more.
with before as (
    select d.tag from holdfast.contract_drafts d where d.org_id = $1::text and d.entity_type = $2::text for update
), saved as (
    insert into holdfast.contract_drafts as t (org_id, entity_type, tag, patch, saved_by, saved_at, reason)
    select $1::text, $2::text, $3::text, $4::jsonb, $5::text, holdfast.clock(), $6::text
    where $7::text is null or exists (select from before b where b.tag = $7::text)
    on conflict (org_id, entity_type) do update
        set tag = excluded.tag, patch = excluded.patch, saved_by = excluded.saved_by, saved_at = excluded.saved_at,
            reason = excluded.reason
        where $7::text is null or t.tag = $7::text
    returning t.tag
)
select holdfast.expect('draft', (select count(*) from saved), 1)
