-- Store a second key with all that the first one has, once, and let the first one end after so many microseconds.
with moment as materialized (select holdfast.clock() as now), former as (
    update holdfast.api_keys k
    set successor = $4::text,
        expires_at = least(k.expires_at, (select m.now from moment m) + $3::bigint * interval '1 microsecond')
    from (
        select t.prefix, t.expires_at - t.created_at as lifetime from holdfast.api_keys t
        where t.prefix = any(array[$1::text]) for update
    ) was
    where k.prefix = any(array[was.prefix]) and coalesce(k.org_id, '') = $2::text and num_nulls(k.revoked_at, k.successor) = 2
        and coalesce(k.expires_at > (select m.now from moment m), true)
    returning k.*, was.lifetime
)
insert into holdfast.api_keys (prefix, org_id, name, subject, partition, digest, roles, capabilities, scopes, created_by,
    created_at, expires_at)
select $4, f.org_id, f.name, f.subject, f.partition, $5::bytea, f.roles, f.capabilities, f.scopes, $6::text, c.now,
    c.now + coalesce($7::bigint * interval '1 microsecond', f.lifetime)
from former f, moment c
