-- Remove a consumer: from here on no fact is for it, and what is open for it will be abandoned.
update holdfast.consumers t set removed_at = (select holdfast.clock()), removed_by = $4::text, filled_to = null,
    swept_to = '{"phase": "wait", "then": "leave"}', updated_at = (select holdfast.clock())
where t.org_id = $1::text and t.environment = $2::text and t.name = $3::text and num_nulls(t.removed_at) = 1
returning t.id
