-- Makes the clock of a test database movable: every due time is read through holdfast.clock(), leases are not.
create schema holdfast_testing;
create table holdfast_testing.clock (
    only_row boolean primary key default true check (only_row),
    shift interval not null default '0'
);
insert into holdfast_testing.clock default values;
grant usage on schema holdfast_testing to public;
grant select on holdfast_testing.clock to public;
create or replace function holdfast.clock() returns timestamptz
language plpgsql stable parallel safe as $$
begin
    return clock_timestamp() + (select c.shift from holdfast_testing.clock c);
end
$$;
