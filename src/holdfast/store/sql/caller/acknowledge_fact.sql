-- Answer a fact in the consumer's own transaction; false when it had been answered before.
select holdfast.ack($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::jsonb, $9::text, $10::text)
