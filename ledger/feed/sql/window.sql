-- Opens a window: the events visible now and not in $1. It reads three values, in this order: until, the
-- snapshot; top, the last position drawn; bound, an xid newer than both. It also returns the incarnation of
-- the database: in another one the arguments have no meaning. Bound is null if no further event can have
-- become visible, so that an idle poll draws no xid.
-- $1 seen (pg_snapshot), $2 seen_top, $3 seen_bound (xid8) of the window before.
-- The caller fails if is_standby (its snapshot lists no running transactions) or has_xid (bound would be
-- older than top). top comes from the sequence and not from the rows, so that rows not yet visible are
-- stepped over once and not at every poll.
-- Locks nothing.
with now as materialized (
  select pg_current_snapshot() as until,
         pg_is_in_recovery() as is_standby,
         pg_current_xact_id_if_assigned() is not null as has_xid
), drawn as materialized (
  select now.until, now.is_standby, now.has_xid,
         coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0) as top
    from now
)
select d.is_standby, d.has_xid, coalesce(taskledger.incarnation(), ''), d.until::text, d.top,
       case
         when d.is_standby or d.has_xid then null
         when d.top > $2::bigint
           or exists (select from taskledger.late_xids($1::text::pg_snapshot, $3::text::xid8) x
                       where pg_visible_in_snapshot(x, d.until)) then pg_current_xact_id()::text
       end as bound
  from drawn d
