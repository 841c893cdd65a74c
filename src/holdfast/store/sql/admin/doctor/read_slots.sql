-- Replication slots and how much write-ahead log each holds back.
select s.slot_name::text, s.active, coalesce(
    case when not pg_is_in_recovery() then pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) end, 0)::bigint, s.wal_status
from pg_replication_slots s where not s.temporary
