-- End a key at once; one that was revoked before stays as it is. No row: the organisation has no such key.
update holdfast.api_keys k
set revoked_at = coalesce(k.revoked_at, (select holdfast.clock())),
    revoked_by = case when num_nulls(k.revoked_at) = 1 then $3::text else k.revoked_by end
where k.prefix = any(array[$1::text]) and coalesce(k.org_id, '') = $2::text
returning k.revoked_at
