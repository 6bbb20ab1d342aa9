-- Appends version $3 + 1 of a task, if version $3 exists, is of one of the types $7 and is the
-- last: compare-and-set by the primary key. An empty answer is explained by head.sql.
-- $1 kind, $2 biz_id, $3 expected version, $4 type, $5 actor or null for session_user,
-- $6 data (JSON text or null), $7 types it may follow and $8 types after which it begins an
-- attempt (text array literals), $9 meta (JSON text or null); when its task is released again:
-- $10 after this many microseconds, or $11 at this moment, or neither (nulls). That is written
-- into the data, and as a timer.
-- Answers data only where a moment may have been written into it.
-- Waits for a concurrent append to the same task; locks nothing else. Index: primary key.
-- The xid is drawn before the position (see page.sql) and before the clock is read (see the
-- table timer).
with tx as materialized (
  select pg_current_xact_id() as xid
), due as materialized (
  select tx.xid, case when $10::bigint is not null or $11::text is not null then taskledger.due_at($10::bigint, $11::text::timestamptz) end as at
    from tx
), added as (
  insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
  select due.xid, e.version + 1, e.attempt + (e.type = any ($8::text::taskledger.event_type[]))::integer, e.shard,
         $4::text::taskledger.event_type, e.kind, e.biz_id, coalesce($5::text, session_user),
         case when due.at is null then $6::text
              else taskledger.with_moment($6::text, case $4::text when 'failed' then 'retry_at' else 'run_at' end, due.at) end::json,
         $9::text::json
    from due
    join taskledger.event e on e.kind = $1::text and e.biz_id = $2::text and e.version = $3::integer
   where e.type = any ($7::text::taskledger.event_type[])
      on conflict (kind, biz_id, version) do nothing
  returning kind, biz_id, position, version, attempt, shard, type, recorded_at, actor, data
), timed as (
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select due.at, a.kind, a.biz_id, a.version, case a.type when 'failed' then 'retry' else 'due' end
    from added a cross join due
   where due.at is not null
)
select a.position, a.version, a.attempt, a.shard, a.recorded_at, a.actor,
       case when a.type in ('scheduled', 'failed', 'snoozed') then a.data::text end
  from added a
