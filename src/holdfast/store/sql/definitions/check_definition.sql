-- Refuse to publish beside a version that is there with other content, or whose handlers are another application's.
select holdfast.expect('publish', (select count(*) from holdfast.definitions d
    where d.org_id = $1::text and d.kind = $2::text and d.name = $3::text and d.version = $4::int and d.hash = $5::text
        and not exists (select from jsonb_each($6::jsonb) as n(name, app) where d.apps -> n.name <> n.app)), 1)
