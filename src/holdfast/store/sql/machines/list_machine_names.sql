-- The machines of this definition, one per environment.
select distinct d.name from holdfast.definitions d
where d.org_id in ($1::text, '_system') and d.kind = 'machine' and d.status = 'published'
    and substr(d.name, strpos(d.name, '.') + 1) = $2::text
order by d.name
