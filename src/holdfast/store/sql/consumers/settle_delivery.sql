-- Settle a fact in the transaction that processed it, and let its instance know; false: it was settled before.
select holdfast.ack($1::text, $2::text, 'processed', $3::text, $4::text, $5::text, $6::text, $7::jsonb, $1::text, $8::text)
