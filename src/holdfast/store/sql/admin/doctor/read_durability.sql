-- Settings that decide whether an answered commit survives a crash, and the room for write-ahead log.
select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
    pg_size_bytes(current_setting('max_wal_size'))
