-- How a database is copied: as files where nothing waits for the disk, because that takes a checkpoint.
select case when current_setting('fsync')::boolean then 'wal_log' else 'file_copy' end
