-- Save how far a consumer has come, unless another worker has moved it meanwhile.
update holdfast.consumers t set filled_to = $5::jsonb, swept_to = $6::jsonb
where t.id = any(array[$1::uuid]) and t.bucket = $2::smallint and t.filled_to is not distinct from $3::jsonb
    and t.swept_to is not distinct from $4::jsonb
returning t.id
