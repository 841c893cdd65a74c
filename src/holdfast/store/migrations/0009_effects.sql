-- Effects: what the worker that delivers them needs to find the due ones of a target and to limit how many run at once.

-- Which effects share a limit: the key the node names, else the host it talks to. Only a rough reading of the address:
-- whoever delivers parses it properly.
create function holdfast.effect_target(payload jsonb) returns text
language plpgsql immutable parallel safe as $$
begin
    return left(lower(coalesce(
        nullif(payload #>> '{config,target}', ''),
        substring(coalesce(payload #>> '{config,url}', payload #>> '{data,url}')
            from '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#]+)'),
        '-')), 200);
end
$$;

-- How many attempts an effect has; a node without a policy of its own gets five.
create function holdfast.effect_attempts(payload jsonb) returns int
language plpgsql immutable parallel safe as $$
begin
    return case when payload ? 'retry' then coalesce((payload #>> '{retry,calls}')::int, 1) else 5 end;
end
$$;

alter table holdfast.effects
    add column target text collate "C" not null default '-',
    add column deadline_at timestamptz;

-- Both hold only what is outstanding, however many effects were delivered.
create index effects_due on holdfast.effects (effect_type, target, next_attempt_at)
    where status in ('pending', 'failed');
create index effects_claimed on holdfast.effects (effect_type, target) where status = 'processing';
-- Whatever its status, for lists and to find one by its id: ids rise with time, so each status grows at its end only.
create index effects_by_status on holdfast.effects (org_id, status, id);

revoke all on function holdfast.effect_target, holdfast.effect_attempts from public;
grant execute on function holdfast.effect_target, holdfast.effect_attempts to holdfast_worker;
