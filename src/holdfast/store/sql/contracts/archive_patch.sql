-- Archive a published patch together with its graph; raises where it is not there, or archived already.
with gone as (
    update holdfast.definitions d set status = 'archived'
    where d.org_id = $1::text and d.kind in ('org_patch', 'effective') and d.name = $2::text and d.version = $3::int
        and d.status = 'published' and not d.is_default
    returning d.id
)
select holdfast.expect('archive', (select count(*) from gone), 2)
