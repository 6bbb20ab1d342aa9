-- Appends version $3 + 1 of a task if its last event is version $3 and of one of the types $7: a
-- compare-and-set on the primary key. If it returns no row, conflict.sql gives the reason.
-- $1 kind, $2 biz_id, $3 expected version, $4 type, $5 actor or null for session_user, $6 data (JSON text or null), $7
-- types that $4 may follow, $8 the types among them after which it begins an attempt (text array literals), $9 meta
-- (JSON text or null). The task is released after $10 microseconds or at time $11; both may be null. That time is
-- written into the data and as a timer. $12 the task's priority from now on, or null to keep it.
-- released is appended as lined_up if the task must line up: see taskledger_internal.type_in_line.
-- Returns the new event; with its data only if a time may have been written into them.
-- A crash of the server may undo the outcome of an attempt, which is then repeated or examined. Other events are on
-- disk when the transaction has committed.
-- Waits for a concurrent append to the same task. Locks nothing else. Index: primary key.
-- It looks for the last event: the archive may remove the event after version $3 while this statement waits for it.
-- The xid is drawn before the position (see package internal/feed) and before the clock is read (see table timer).
with tx as materialized (
  select pg_current_xact_id() as xid, taskledger_internal.session_login() as login_id,
         case when taskledger_internal.is_awaited() then taskledger_internal.wake() end,
         case when $4::text <> all ('{succeeded,failed,interrupted,snoozed}'::text[])
              then taskledger_internal.commit_durably() end
), due as materialized (
  select tx.xid, tx.login_id,
         case when $10::bigint is not null or $11::text is not null
              then taskledger_internal.due_at($10::bigint, $11::text::timestamptz) end as at
    from tx
), added as (
  insert into taskledger.event (version, attempt, shard, type, login_id, priority, partition, kind, biz_id,
                                order_key, actor, data, meta)
  select e.version + 1, e.attempt + (e.type = any ($8::text::taskledger.event_type[]))::integer, e.shard,
         taskledger_internal.type_in_line($4::text::taskledger.event_type, e.type, e.order_key), due.login_id,
         coalesce($12::integer, e.priority), e.partition, e.kind, e.biz_id, e.order_key,
         coalesce($5::text, session_user),
         case when due.at is null then $6::text
              else taskledger_internal.with_moment(
                     $6::text, case $4::text when 'failed' then 'retry_at' else 'run_at' end, due.at) end::json,
         $9::text::json
    from due
   cross join lateral (
     select h.kind, h.biz_id, h.version, h.attempt, h.shard, h.type, h.priority, h.partition, h.order_key
       from taskledger.event h
      where h.kind = $1::text and h.biz_id = $2::text and h.version >= $3::integer
      order by h.version desc
      limit 1) e
   where e.version = $3::integer and e.type = any ($7::text::taskledger.event_type[])
     and (e.version > 1 or taskledger_internal.archived_version(e.kind, e.biz_id) is null)
     and ($4::text <> 'released' or e.type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')
          or taskledger_internal.still_ends(e.kind, e.biz_id, e.version, true))
      on conflict (kind, biz_id, version) do nothing
  returning kind, biz_id, position, version, attempt, shard, type, priority, partition, order_key, recorded_at, actor,
            data, case when order_key is not null then taskledger_internal.wake() end
), timed as (
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select due.at, a.kind, a.biz_id, a.version, case a.type when 'failed' then 'retry' else 'due' end
    from added a cross join due
   where due.at is not null
)
select a.position, a.version, a.attempt, a.shard, a.type::text, a.priority, coalesce(a.partition, ''),
       coalesce(a.order_key, ''), (date_part('epoch', a.recorded_at) * 1e6)::bigint, a.actor, session_user::text,
       case when a.type in ('scheduled', 'failed', 'snoozed') then a.data::text end
  from added a
