-- Keys for programs: who they stand for, what they may, and the digest of a secret that is stored nowhere.
-- The prefix is the public half of a key and finds its row before the organisation is known. Nothing but the end of a
-- key, its successor and the moment of its last use ever changes, and no row is removed: who had which key stays known.

create table holdfast.api_keys (
    prefix text primary key check (prefix ~ '^[a-z0-9]{12}$'),
    org_id text not null check (octet_length(org_id) between 1 and 200),
    name text not null check (octet_length(name) between 1 and 200),
    subject text not null check (octet_length(subject) between 1 and 2000),
    partition text not null check (octet_length(partition) <= 200),
    digest bytea not null check (octet_length(digest) = 32),
    roles jsonb not null,
    capabilities jsonb not null,
    scopes jsonb not null,
    successor text,  -- the key that was made to replace this one
    created_by text,
    created_at timestamptz not null,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz,
    revoked_by text,
    constraint api_keys_expires check (expires_at >= created_at),
    constraint api_keys_revoked check (revoked_by is null or revoked_at is not null)
) with (fillfactor = 80);
-- A condition that always holds, and that only a query by organisation implies: to a look-up it is invisible.
create index api_keys_by_org on holdfast.api_keys (org_id, created_at, prefix) where org_id is not null;

select holdfast.forbid_truncate('api_keys');
alter table holdfast.api_keys enable row level security;
alter table holdfast.api_keys force row level security;
create policy worker on holdfast.api_keys to holdfast_worker using (true) with check (true);
create policy tenant on holdfast.api_keys to holdfast_tenant
    using (org_id = (select holdfast.visible_org()));

grant select, insert on holdfast.api_keys to holdfast_worker;
grant update (successor, expires_at, last_used_at, revoked_at, revoked_by) on holdfast.api_keys to holdfast_worker;
-- All but the digest: whoever reads as a tenant has no use for it.
grant select (
    prefix, org_id, name, subject, partition, roles, capabilities, scopes, successor, created_by, created_at,
    expires_at, last_used_at, revoked_at, revoked_by
) on holdfast.api_keys to holdfast_tenant;
