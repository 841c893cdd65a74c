-- The compiled graph an instance is pinned to.
select d.id, d.org_id, d.kind, d.version, d.status, d.compiled, d.hash, d.compiler_version, d.apps
from holdfast.definitions d where d.id = $1::uuid
