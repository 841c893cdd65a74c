-- The compiled graph of a definition.
select d.compiled::text, d.hash from holdfast.definitions d where d.id = $1::uuid
