-- Contracts of documents: drafts of patches, what was done with contracts and patches, decision tables, and what no start
-- may take.
-- Published contracts, patches and graphs are rows of `definitions`, which guards them already.

-- One draft per organisation and type; each save gives it another tag, so that nobody writes over what they have not seen.
create table holdfast.contract_drafts (
    org_id text not null check (octet_length(org_id) between 1 and 200),
    entity_type text not null check (octet_length(entity_type) between 1 and 200),
    tag text not null check (octet_length(tag) between 1 and 200),
    patch jsonb not null,
    saved_by text not null check (octet_length(saved_by) between 1 and 2000),
    saved_at timestamptz not null,
    reason text check (octet_length(reason) between 1 and 2000),
    primary key (org_id, entity_type)
);

create table holdfast.contract_events (
    id bigint primary key generated always as identity,
    org_id text not null check (octet_length(org_id) between 1 and 200),
    entity_type text not null check (octet_length(entity_type) between 1 and 200),
    action text not null check (action in (
        'contract_published', 'draft_saved', 'draft_dropped', 'patch_published', 'patch_restored', 'patch_archived',
        'patch_rebased')),
    version int check (version > 0),  -- of the contract or of the patch; null: of a draft
    origin int check (origin > 0),  -- the version of the patch that was restored or rebased
    actor text not null check (octet_length(actor) between 1 and 2000),
    reason text check (octet_length(reason) between 1 and 2000),
    created_at timestamptz not null
);
create index contract_events_by_type on holdfast.contract_events (org_id, entity_type, id);

create trigger contract_events_unchanged
after update on holdfast.contract_events for each row
execute function holdfast.refuse_change('What was done with a contract stays written as it was');

create trigger contract_events_kept
after delete on holdfast.contract_events for each row
execute function holdfast.refuse_change('What was done with a contract is never deleted');

-- The versions of decision tables; a patch takes a copy of the one it names into its graph.
create table holdfast.decision_tables (
    org_id text not null check (octet_length(org_id) between 1 and 200),
    name text not null check (octet_length(name) between 1 and 200),
    version int not null check (version > 0),
    content jsonb not null,
    hash text not null,
    created_by text not null check (octet_length(created_by) between 1 and 2000),
    reason text check (octet_length(reason) between 1 and 2000),
    published_at timestamptz not null,
    primary key (org_id, name, version)
);

create trigger decision_tables_unchanged
after update on holdfast.decision_tables for each row
execute function holdfast.refuse_change('A published decision table never changes');

create trigger decision_tables_kept
after delete on holdfast.decision_tables for each row
execute function holdfast.refuse_change('A published decision table is never deleted');

do $$
declare
    secured text;
begin
    foreach secured in array array['contract_drafts', 'contract_events', 'decision_tables'] loop
        perform holdfast.forbid_truncate(secured);
        execute format('alter table holdfast.%I enable row level security', secured);
        execute format('alter table holdfast.%I force row level security', secured);
        execute format('create policy worker on holdfast.%I to holdfast_worker using (true) with check (true)', secured);
        -- Decision tables of the system are for all, as its contracts are.
        execute format('create policy tenant on holdfast.%I to holdfast_tenant using (org_id %s)', secured,
            case secured when 'decision_tables' then 'in (''_system'', (select holdfast.visible_org()))'
                else '= (select holdfast.visible_org())' end);
        execute format('grant select, insert on holdfast.%I to holdfast_worker', secured);
        execute format('grant select on holdfast.%I to holdfast_tenant', secured);
    end loop;
end
$$;
grant update, delete on holdfast.contract_drafts to holdfast_worker;

-- The graph of a document runs for a document, and nothing else starts it.
create function holdfast.refuse_document(flow text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    raise exception '"%" is the graph of documents, and a start names none', flow
        using errcode = 'HF422', hint = 'Start a flow of your own; such a graph runs for a document of its type.';
end
$$;

create or replace function holdfast.startable(
    flow text, version int, tenant text, out definition_id uuid, out flow_version int
)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    compiler text;
    is_machine boolean;
    is_document boolean;
begin
    select d.id, d.version, d.compiler_version, d.kind = 'machine' and d.compiled ? 'config',
            d.kind = 'effective'
        into definition_id, flow_version, compiler, is_machine, is_document
    from holdfast.definitions d
    where d.org_id in (tenant, '_system')
      and d.kind in ('saga', 'steps', 'machine', 'effective')
      and d.name = startable.flow
      and d.status = 'published'
      and (startable.version is null or d.version = startable.version)
    order by d.org_id = '_system', d.version desc
    limit 1;
    if definition_id is null then
        raise exception 'There is no published flow "%"%', flow, coalesce(' in version ' || startable.version, '')
            using errcode = 'HF404', hint = format('Publish it for organisation "%s" first.', tenant);
    end if;
    if is_machine then
        raise exception '"%" is a machine: an instance begins with the first event of its reference', flow
            using errcode = 'HF422', hint = 'Use holdfast.trigger.';
    end if;
    if is_document then
        perform holdfast.refuse_document(flow);
    end if;
    perform holdfast.refuse_stale(flow, flow_version, compiler);
end
$$;

revoke all on function holdfast.refuse_document from public;
grant execute on function holdfast.refuse_document to holdfast_worker;
