-- Selects the work of a ledger's services, in one snapshot.
-- $1 readers of the feed that must have passed every event (text array literal).
-- Returns one row: microseconds since the newest event was recorded, or null without events; whether a task is
-- available or running, a reader has events to read, or a transaction in progress may append; microseconds until the
-- first timer is due, or null without timers.
-- Locks nothing. Indexes: event's positions, backwards; primary key of timer; as task_counts and feed_lag.
select (select (extract(epoch from clock_timestamp() - e.recorded_at) * 1e6)::bigint
          from taskledger.event e
         order by e.position desc
         limit 1),
       exists (select from taskledger.task_counts c where c.state in ('available', 'running')),
       exists (
         select from unnest($1::text::text[]) reader
          cross join lateral taskledger_internal.feed_lag(reader, 1) lag
          where lag.events > 0),
       exists (select from pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot())),
       (select (extract(epoch from least(t.due_at, '9999-01-01 00:00:00+00') - clock_timestamp()) * 1e6)::bigint
          from taskledger.timers t
         where t.due_at < taskledger_internal.end_of_time()
         order by t.due_at, t.kind, t.biz_id, t.version, t.reason
         limit 1)
