-- Whether each transaction that had begun at the end of a snapshot has ended. Then no event below a position that the
-- snapshot sees can appear, because an event's transaction ID is older than its position.
-- $1 pg_snapshot_xmax of the snapshot. Locks nothing.
select pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8
