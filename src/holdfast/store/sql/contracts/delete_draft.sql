-- Take away the draft with a tag; raises where it is gone or was saved again meanwhile.
with gone as (
    delete from holdfast.contract_drafts d
    where d.org_id = $1::text and d.entity_type = $2::text and d.tag = $3::text
    returning d.tag
)
select holdfast.expect('draft', (select count(*) from gone), 1)
