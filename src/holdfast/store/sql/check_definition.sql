-- Refuse to publish beside a version that is there with other content.
select holdfast.expect('publish', (select count(*) from holdfast.definitions d
    where d.org_id = $1::text and d.kind = $2::text and d.name = $3::text and d.version = $4::int and d.hash = $5::text), 1)
