-- The key with this prefix, whose organisation nobody knows yet, its digest, and whether it still counts.
select k.prefix, k.org_id, k.name, k.subject, k.partition, k.roles, k.capabilities, k.scopes, k.successor, k.created_by,
    k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.revoked_by, k.digest,
    num_nulls(k.revoked_at) = 1 and coalesce(k.expires_at > (select holdfast.clock()), true)
from holdfast.api_keys k where k.prefix = any(array[$1::text])
