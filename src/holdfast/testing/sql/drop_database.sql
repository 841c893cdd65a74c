-- Removes a test database whoever is still connected to it.
drop database if exists {database} with (force)
