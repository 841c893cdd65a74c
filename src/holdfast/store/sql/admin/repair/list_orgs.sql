-- The organisations that have instances which are not completed.
with recursive orgs as (
    (select i.org_id from holdfast.instances i where i.status <> 'completed' order by i.org_id limit 1)
    union all
    select (select i.org_id from holdfast.instances i where i.status <> 'completed' and i.org_id > o.org_id
        order by i.org_id limit 1)
    from orgs o where o.org_id is not null
)
select o.org_id from orgs o where o.org_id is not null
