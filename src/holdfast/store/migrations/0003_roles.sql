-- Two roles without login, row-level security for both, and privileges that keep history append-only.

-- Roles belong to the whole server: another database may create them at this very moment.
do $$
declare
    wanted text;
begin
    foreach wanted in array array['holdfast_worker', 'holdfast_tenant'] loop
        if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
            begin
                execute format('create role %I nologin', wanted);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
        -- The owner is bound by its own forced policies, so it has to inherit the worker's.
        if not pg_catalog.pg_has_role(current_user, wanted, 'usage') then
            execute format('grant %I to current_user', wanted);
        end if;
    end loop;
end
$$;

-- The organisation whose rows this login may see: the one of the setting, if it may act for it. Policies ask in a
-- sub-select, so once for each table of a statement; what the statement itself then sets comes too late.
create function holdfast.visible_org() returns text
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    wanted text := nullif(current_setting('holdfast.org', true), '');
begin
    if pg_has_role(session_user, 'holdfast_worker', 'member') then  -- alone: without a query it costs next to nothing
        return wanted;
    end if;
    return (select g.org_id from holdfast.tenant_grants g where g.role_name = session_user and g.org_id = wanted);
end
$$;

do $$
declare
    secured text;
begin
    foreach secured in array array[
        'definitions', 'instances', 'instance_attributes', 'steps', 'step_receipts', 'outbox_receipts', 'work', 'signals', 'inbox',
        'event_keys', 'key_events', 'key_waits', 'timers', 'dead_letters', 'effects', 'events', 'statistics_deltas',
        'statistics', 'rate_limits', 'tenant_grants'
    ] loop
        execute format('alter table holdfast.%I enable row level security', secured);
        execute format('alter table holdfast.%I force row level security', secured);
        execute format('create policy worker on holdfast.%I to holdfast_worker'
            ' using (true) with check (true)', secured);
        execute format('create policy tenant on holdfast.%I to holdfast_tenant'
            ' using (org_id = (select holdfast.visible_org()))', secured);
    end loop;
end
$$;
alter policy tenant on holdfast.definitions
    using (org_id in ('_system', (select holdfast.visible_org())));

grant usage on schema holdfast to holdfast_worker, holdfast_tenant;

grant select, insert on all tables in schema holdfast to holdfast_worker;
revoke insert on holdfast.schema_version, holdfast.tenant_grants from holdfast_worker;
grant update on
    holdfast.instances, holdfast.work, holdfast.workers, holdfast.signals, holdfast.timers, holdfast.inbox,
    holdfast.event_keys, holdfast.key_waits, holdfast.effects, holdfast.definitions, holdfast.statistics,
    holdfast.rate_limits
    to holdfast_worker;
grant update (
    reason, error, attempts, worker, created_at, resolved_at, resolution, resolved_by, resolved_why
) on holdfast.dead_letters to holdfast_worker;
grant update (
    status, outcome, chosen_edge_ids, output, error, closing, calls, fence,
    closed_version, closed_ordinal, closed_at, closed_by
) on holdfast.steps to holdfast_worker;
grant delete on
    holdfast.work, holdfast.signals, holdfast.timers, holdfast.inbox, holdfast.key_events, holdfast.key_waits,
    holdfast.event_keys, holdfast.workers, holdfast.statistics_deltas
    to holdfast_worker;

grant select on
    holdfast.instances, holdfast.instance_attributes, holdfast.steps, holdfast.events, holdfast.definitions,
    holdfast.dead_letters, holdfast.effects, holdfast.timers, holdfast.statistics_deltas, holdfast.statistics
    to holdfast_tenant;

revoke all on all functions in schema holdfast from public;
grant execute on all functions in schema holdfast to holdfast_worker;
grant execute on function holdfast.attribute_value(jsonb), holdfast.fits, holdfast.letter_fits, holdfast.visible_org
    to holdfast_tenant;
