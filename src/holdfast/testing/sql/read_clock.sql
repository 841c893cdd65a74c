-- The time a test database believes in; a statement of its own, because the clock does not see the update it stands in.
select holdfast.clock()
