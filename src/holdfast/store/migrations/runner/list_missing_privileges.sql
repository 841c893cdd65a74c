-- What an administrator has to run so that this login can migrate, one statement per row.
select format('GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)
where to_regnamespace('holdfast') is null
  and not has_database_privilege(current_user, current_database(), 'CREATE')
union all
select format('ALTER ROLE %I CREATEROLE;', current_user)
where (select count(*) from pg_roles where rolname in ('holdfast_worker', 'holdfast_tenant', 'holdfast_maintenance')) < 3
  and not (select rolcreaterole or rolsuper from pg_roles where rolname = current_user)
union all
select format('GRANT %I TO %I;', rolname, current_user)
from pg_roles
where rolname in ('holdfast_worker', 'holdfast_tenant', 'holdfast_maintenance')
  and not pg_has_role(current_user, oid, 'usage')
union all
select format('GRANT %I TO %I;', pg_get_userbyid(nspowner), current_user)
from pg_namespace
where nspname = 'holdfast' and not pg_has_role(current_user, nspowner, 'usage')
