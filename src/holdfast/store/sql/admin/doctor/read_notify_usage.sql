-- How full the queue of notifications is.
select pg_notification_queue_usage()
