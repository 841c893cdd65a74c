-- What the graphs of a type are numbered by: the last number, the patch in force, the contract that has a graph without one.
select
    (select coalesce(max(d.version), 0) from holdfast.definitions d
        where d.org_id = $1::text and d.kind in ('org_patch', 'effective') and d.name = $2::text),
    (select max(d.version) from holdfast.definitions d
        where d.org_id = $1::text and d.kind = 'org_patch' and d.name = $2::text and d.status = 'published'),
    (select max((d.base_ref ->> 'envelope')::int) from holdfast.definitions d
        where d.org_id = $1::text and d.kind = 'effective' and d.name = $2::text and d.is_default)
