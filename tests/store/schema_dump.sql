-- Everything the migrations made, one line each, in an order and a spelling that does not depend on the month.
with tables as (
    select c.* from pg_class c
    where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p')
      and (not c.relispartition or c.relname like '%\_default')
)
select line from (
    select format('table %s%s%s%s', c.relname, case c.relkind when 'p' then ' partitioned' end,
        case when c.relrowsecurity and c.relforcerowsecurity then ' secured' end,
        ' ' || array_to_string(c.reloptions, ', ')) as line
    from tables c
    union all
    select format('domain %s as %s %s', t.typname, format_type(t.typbasetype, t.typtypmod), pg_get_constraintdef(k.oid))
    from pg_type t left join pg_constraint k on k.contypid = t.oid
    where t.typnamespace = 'holdfast'::regnamespace and t.typtype = 'd'
    union all
    select format('column %s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
        case when a.attnotnull then ' not null' end, ' default ' || pg_get_expr(d.adbin, d.adrelid))
    from tables c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    union all
    select format('constraint %s.%s %s', c.relname, k.conname, pg_get_constraintdef(k.oid))
    from tables c join pg_constraint k on k.conrelid = c.oid and k.contype in ('c', 'f', 'p', 'u', 'x')
    union all
    select format('index %s', pg_get_indexdef(i.indexrelid))
    from tables c join pg_index i on i.indrelid = c.oid
    union all
    select format('trigger %s', pg_get_triggerdef(t.oid))
    from tables c join pg_trigger t on t.tgrelid = c.oid and not t.tgisinternal and t.tgparentid = 0
    union all
    select format('policy %s.%s to %s using %s check %s', p.tablename, p.policyname, array_to_string(p.roles, ', '),
        p.qual, p.with_check)
    from pg_policies p join tables c on c.relname = p.tablename where p.schemaname = 'holdfast'
    union all
    select format('grant %s on %s to %s', lower(a.privilege_type), c.relname, a.grantee::regrole)
    from tables c cross join aclexplode(c.relacl) a where a.grantee <> c.relowner
    union all
    select format('grant %s on %s.%s to %s', lower(a.privilege_type), c.relname, t.attname, a.grantee::regrole)
    from tables c join pg_attribute t on t.attrelid = c.oid cross join aclexplode(t.attacl) a
    union all
    select format('function %s returns %s %s%s%s source %s', p.oid::regprocedure, pg_get_function_result(p.oid),
        case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
        case when p.prosecdef then ' definer' end, ' set ' || array_to_string(p.proconfig, ' set '), md5(p.prosrc))
    from pg_proc p where p.pronamespace = 'holdfast'::regnamespace
    union all
    select format('grant execute on %s to %s', p.oid::regprocedure,
        case when a.grantee = 0 then 'public' else a.grantee::regrole::text end)
    from pg_proc p cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
    where p.pronamespace = 'holdfast'::regnamespace and a.grantee <> p.proowner
) dump
order by line collate "C"
