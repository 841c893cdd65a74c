-- What the database refuses whoever asks: rewritten history, changed identity, backward statuses.
-- AFTER triggers write less WAL than BEFORE ones, and their column lists and WHEN clauses keep every legal row out of
-- PL/pgSQL. A row that moves to another partition is deleted and inserted: the delete triggers see that. Conditions
-- are kept short: PostgreSQL reads their stored form anew for every statement, constants byte by byte.

create function holdfast.refuse_change() returns trigger
language plpgsql as $$
begin
    raise exception '% (row %)', tg_argv[0], coalesce(
            to_jsonb(old) ->> 'id', to_jsonb(old) ->> 'instance_id', to_jsonb(new) ->> 'id', to_jsonb(new) ->> 'instance_id')
        using errcode = 'HF002';
end
$$;

create function holdfast.refuse_move() returns trigger
language plpgsql as $$
begin
    raise exception '% % may not go from % to %', tg_argv[0], old.id, old.status, new.status using errcode = 'HF002';
end
$$;

-- The one move nearly every row makes never gets here; the others are looked up in the table of legal moves.
create function holdfast.check_instance_move() returns trigger
language plpgsql as $$
begin
    if strpos(
        ' pending>running pending>suspended pending>dlq pending>rolling_back pending>completed '
        'pending>failed pending>cancelled pending>aborted running>suspended running>dlq '
        'running>rolling_back running>completed running>failed running>cancelled running>aborted '
        'suspended>running suspended>dlq suspended>rolling_back suspended>completed suspended>failed '
        'suspended>cancelled suspended>aborted dlq>running dlq>suspended dlq>rolling_back dlq>completed '
        'dlq>failed dlq>cancelled dlq>aborted rolling_back>suspended rolling_back>failed '
        'rolling_back>cancelled rolling_back>aborted ',
        ' ' || old.status || '>' || new.status || ' ') = 0
    then
        raise exception 'Instance % may not go from % to %', old.id, old.status, new.status using errcode = 'HF002';
    end if;
    return null;
end
$$;

create function holdfast.check_step_move() returns trigger
language plpgsql as $$
begin
    if old.status <> new.status and strpos(
        ' pending>running pending>waiting_decision pending>waiting pending>completed pending>confirmed '
        'pending>rejected pending>failed pending>paused pending>skipped pending>cancelled '
        'running>waiting_decision running>waiting running>completed running>confirmed running>rejected '
        'running>failed running>paused running>skipped running>cancelled running>compensation '
        'running>rolled_back waiting_decision>completed '
        'waiting_decision>confirmed waiting_decision>rejected waiting_decision>failed '
        'waiting_decision>paused waiting_decision>skipped waiting_decision>cancelled waiting>completed '
        'waiting>confirmed waiting>rejected waiting>failed waiting>paused waiting>skipped '
        'waiting>cancelled completed>compensation completed>rolled_back confirmed>compensation '
        'confirmed>rolled_back failed>compensation failed>rolled_back failed>superseded paused>skipped '
        'paused>superseded compensation>failed compensation>rolled_back ',
        ' ' || old.status || '>' || new.status || ' ') = 0
    then
        raise exception 'Step % may not go from % to %', old.id, old.status, new.status using errcode = 'HF002';
    end if;
    return null;
end
$$;

-- instances

create trigger instances_identity
after update of id, bucket, org_id, flow, input, idempotency_key, business_key, entity_type, entity_id, attributes,
    parent_id, parent_token, trace, created_by, created_at
on holdfast.instances for each row when (
    (old.id, old.bucket, old.org_id, old.flow, old.input, old.idempotency_key, old.business_key, old.entity_type,
        old.entity_id, old.attributes, old.parent_id, old.parent_token, old.trace, old.created_by, old.created_at)
    is distinct from
    (new.id, new.bucket, new.org_id, new.flow, new.input, new.idempotency_key, new.business_key, new.entity_type,
        new.entity_id, new.attributes, new.parent_id, new.parent_token, new.trace, new.created_by, new.created_at)
) execute function holdfast.refuse_change('What an instance was started with never changes');

create trigger instances_pinned
after update of definition_id, flow_version on holdfast.instances for each row when (
    (old.definition_id, old.flow_version) is distinct from (new.definition_id, new.flow_version)
    and current_setting('holdfast.migrating', true) is distinct from 'on'
) execute function holdfast.refuse_change('An instance keeps its version of the flow until it is migrated');

create trigger instances_version
after update on holdfast.instances for each row when (
    new.version <= old.version or new.updated_at < old.updated_at
) execute function holdfast.refuse_change('The version of an instance rises with every change, and its date never goes back');

create trigger instances_end
after update of status, completed_at on holdfast.instances for each row when (
    (new.completed_at is null) <> (strpos(' completed failed cancelled aborted ', ' ' || new.status || ' ') = 0)
    or old.completed_at <> new.completed_at or (old.completed_at is not null and new.completed_at is null)
) execute function holdfast.refuse_change('An instance has an end exactly when its status says so, and the end is final');

-- Named by its columns: a statement that leaves the error alone does not even read the condition.
create trigger instances_error
after update of last_error, error_code on holdfast.instances for each row when (
    new.error_code is distinct from left(new.last_error ->> 'code', 200)
) execute function holdfast.refuse_change('The code of an instance''s error is the one that its error has');

create trigger instances_status
after update of status on holdfast.instances for each row when (
    old.status <> new.status
    and strpos('runningcompleted runningrolling_back rolling_backfailed', old.status || new.status) = 0
) execute function holdfast.check_instance_move();

create function holdfast.refuse_insert() returns trigger
language plpgsql as $$
begin
    raise exception '% (row %)', tg_argv[0], new.id using errcode = 'check_violation';
end
$$;

create trigger instances_insert
after insert on holdfast.instances for each row when (
    new.bucket <> get_byte(uuid_send(new.id), 15)
    or (new.completed_at is null) <> (strpos(' completed failed cancelled aborted ', ' ' || new.status || ' ') = 0)
    or octet_length(new.org_id) not between 1 and 200
    or octet_length(new.flow) not between 1 and 200
    or octet_length(new.idempotency_key) not between 1 and 500
    or octet_length(new.business_key) not between 1 and 500
    or octet_length(new.entity_type) not between 1 and 200
    or octet_length(new.entity_id) not between 1 and 500
    or (new.entity_type is null) <> (new.entity_id is null)
    or (new.parent_id is null) <> (new.parent_token is null)
    or new.error_code is distinct from left(new.last_error ->> 'code', 200)
) execute function holdfast.refuse_insert('An instance needs names and keys of legal length, a bucket that fits its id, an end if its status says so, and the code of its error');

create function holdfast.note_attributes() returns trigger
language plpgsql as $$
begin
    insert into holdfast.instance_attributes (org_id, name, value, instance_id, bucket)
    select new.org_id, a.key, holdfast.attribute_value(a.value), new.id, new.bucket
    from jsonb_each(new.attributes) a
    where octet_length(a.key) between 1 and 200 and holdfast.attribute_value(a.value) is not null;
    return null;
end
$$;

create trigger instances_attributes
after insert on holdfast.instances for each row when (jsonb_typeof(new.attributes) = 'object')
execute function holdfast.note_attributes();

-- steps

create trigger steps_identity
after update of instance_id, bucket, created_at, id, org_id, node, behaviour, path, hop, kind, run, entity_version,
    receipt_key, opened_version, opened_ordinal, opened_by, cause, input, detail
on holdfast.steps for each row when (
    (old.instance_id, old.bucket, old.created_at, old.id, old.org_id, old.node, old.behaviour, old.path, old.hop,
        old.kind, old.run, old.entity_version, old.receipt_key, old.opened_version, old.opened_ordinal, old.opened_by,
        old.cause, old.input, old.detail)
    is distinct from
    (new.instance_id, new.bucket, new.created_at, new.id, new.org_id, new.node, new.behaviour, new.path, new.hop,
        new.kind, new.run, new.entity_version, new.receipt_key, new.opened_version, new.opened_ordinal, new.opened_by,
        new.cause, new.input, new.detail)
) execute function holdfast.refuse_change('What a step was opened with never changes');

-- The status of a closed step may still move (it is taken back or superseded), and a call that was counted and not made is
-- taken back. A statement that so much as names another of its columns is refused, whatever it says: there is no
-- exception, because a migration and a re-run write rows of their own.
create trigger steps_closed
after update of outcome, chosen_edge_ids, output, error, closing, closed_version, closed_ordinal, closed_at, closed_by
on holdfast.steps for each row when (old.closed_at is not null)
execute function holdfast.refuse_change('A closed step keeps its outcome, output, error and edges, and who closed it when');

-- Moves of the plain path, from and to in one word.
create trigger steps_status
after update of status on holdfast.steps for each row when (
    strpos('runningcompleted pendingrunning completedcompensation runningcompensation compensationrolled_back',
        old.status || new.status) = 0
) execute function holdfast.check_step_move();

create trigger steps_kept
after delete on holdfast.steps for each row when (current_setting('holdfast.maintenance', true) is distinct from 'on')
execute function holdfast.refuse_change('Steps are the source of truth: no row is deleted or moved');

-- receipts and events

create trigger step_receipts_kept
after update on holdfast.step_receipts for each row
execute function holdfast.refuse_change('Receipts are append-only');

create trigger outbox_receipts_kept
after update on holdfast.outbox_receipts for each row
execute function holdfast.refuse_change('Receipts are append-only');

create trigger events_unchanged
after update on holdfast.events for each row
execute function holdfast.refuse_change('The audit trail is append-only');

create trigger events_kept
after delete on holdfast.events for each row when (current_setting('holdfast.maintenance', true) is distinct from 'on')
execute function holdfast.refuse_change('The audit trail is append-only');

-- effects

create trigger effects_identity
after update of instance_id, bucket, created_at, id, org_id, step_id, step_created_at, token, effect_type, payload,
    key, awaited, trace
on holdfast.effects for each row when (
    (old.instance_id, old.bucket, old.created_at, old.id, old.org_id, old.step_id, old.step_created_at, old.token,
        old.effect_type, old.payload, old.key, old.awaited, old.trace)
    is distinct from
    (new.instance_id, new.bucket, new.created_at, new.id, new.org_id, new.step_id, new.step_created_at, new.token,
        new.effect_type, new.payload, new.key, new.awaited, new.trace)
) execute function holdfast.refuse_change('What an effect was asked to do never changes');

create trigger effects_status
after update of status on holdfast.effects for each row when (
    old.status <> new.status and strpos(
        ' pending>processing processing>pending processing>completed processing>failed '
        'processing>dead_letter failed>pending failed>processing failed>dead_letter dead_letter>pending ',
        ' ' || old.status || '>' || new.status || ' ') = 0
) execute function holdfast.refuse_move('Effect');

create trigger effects_delivered
after update on holdfast.effects for each row when (old.status = 'completed')
execute function holdfast.refuse_change('A delivered effect keeps its evidence');

create trigger effects_kept
after delete on holdfast.effects for each row when (current_setting('holdfast.maintenance', true) is distinct from 'on')
execute function holdfast.refuse_change('Effects are evidence: no row is deleted or moved');

-- Months. Whoever may update a table may move a row to another month, and for that PostgreSQL asks neither for the right
-- to delete nor the guards of updates: it deletes and inserts. Outside of upkeep the guards of deletion refuse that. During
-- upkeep, which anybody may say it is, no row is inserted: so a move is refused at its one end or at the other, whatever a
-- statement sets on its way. To another date of the same month no row goes, that is part of its identity.
-- A BEFORE UPDATE trigger would do as well where nothing is ever updated, as in the trail. Elsewhere it costs: while there
-- is one, every update of any column first locks its row, with a record in the log.

create trigger steps_month
after insert on holdfast.steps for each row when (current_setting('holdfast.maintenance', true) = 'on')
execute function holdfast.refuse_change('No update moves a step to another date, and upkeep opens none');

create trigger effects_month
after insert on holdfast.effects for each row when (current_setting('holdfast.maintenance', true) = 'on')
execute function holdfast.refuse_change('No update moves an effect to another date, and upkeep asks for none');

create trigger events_month
before update of created_at on holdfast.events for each row when (old.created_at is distinct from new.created_at)
execute function holdfast.refuse_change('No update moves an event to another date');

-- dead letters

create trigger dead_letters_identity
after update of id, bucket, org_id, instance_id, flow, step, source, envelope on holdfast.dead_letters for each row when (
    (old.id, old.bucket, old.org_id, old.instance_id, old.flow, old.step, old.source, old.envelope)
    is distinct from
    (new.id, new.bucket, new.org_id, new.instance_id, new.flow, new.step, new.source, new.envelope)
) execute function holdfast.refuse_change('What a dead letter holds never changes');

-- The letter of an effect that fails again after its replay is opened again, with the new error.
create trigger dead_letters_answered
after update on holdfast.dead_letters for each row when (old.resolved_at is not null and new.resolved_at is not null)
execute function holdfast.refuse_change('The answer to a dead letter never changes');

-- definitions

create trigger definitions_published
after update on holdfast.definitions for each row when (
    not old.is_default and old.status <> 'draft' and (
        (to_jsonb(old) - 'status') <> (to_jsonb(new) - 'status')
        or (old.status <> new.status and (old.status, new.status) <> ('published', 'archived')))
) execute function holdfast.refuse_change('A published definition never changes; publish a new version');

create trigger definitions_default
after update on holdfast.definitions for each row when (old.is_default)
execute function holdfast.refuse_change('A generated envelope never changes; generate a new version');

create trigger definitions_kept
after delete on holdfast.definitions for each row when (old.is_default or old.status <> 'draft')
execute function holdfast.refuse_change('A published definition is never deleted; archive it');

revoke all on function
    holdfast.refuse_change, holdfast.refuse_move, holdfast.refuse_insert, holdfast.check_instance_move,
    holdfast.check_step_move, holdfast.note_attributes
    from public;
