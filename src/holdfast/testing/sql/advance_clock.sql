-- Moves the clock of a test database forward.
update holdfast_testing.clock set shift = shift + %(by)s
