-- A page of the keys of an organisation, newest first, without their digests.
select k.prefix, k.org_id, k.name, k.subject, k.partition, k.roles, k.capabilities, k.scopes, k.successor, k.created_by,
    k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.revoked_by
from holdfast.api_keys k
where k.org_id = $1::text and (k.created_at, k.prefix) < ($2::timestamptz, $3::text)
    and ($4::boolean or num_nulls(k.revoked_at) = 1 and coalesce(k.expires_at > $5::timestamptz, true))
order by k.created_at desc, k.prefix desc limit $6::int
