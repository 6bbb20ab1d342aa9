-- Appends the events of due timers and removes the timers, or does neither.
-- $1 moment at which to start, $2 maximum number of timers; $3 types of events that released may follow, $4
-- that expired may follow (text array literals); $5 keys (kind/biz_id) to leave out, or $6 the only keys ('{}':
-- all others), due until $7 (text array literals).
-- Returns one row: the clock that decided; the number of timers locked, of released and of expired events
-- appended, and of timers kept; of $6 the number of timers that another session has locked; due_at of the first
-- and the last timer locked, or null.
--
-- released is appended if the event that set the timer is the task's last one. A deadline is about the task:
-- start_by expires a task that waits and has never begun, finish_by one that waits. If both events fit a task,
-- it expires. If a task is running at its finish_by, the timer is due again in a second. Every other timer is
-- removed without an event.
--
-- A deadline whose task gets another event at the same time is kept: the next batch reads the new head.
--
-- Locks the timers, skipping locked ones; waits for concurrent appends to the tasks, in the order of the keys.
-- Index: primary keys. The transaction has set enable_seqscan and enable_bitmapscan to off (settings.sql),
-- because the table is empty at one moment and holds millions at another, which makes its statistics misleading.
-- The clock is read before the statement's transaction ID is drawn.
with clock as materialized (
  select clock_timestamp() as at
), due as materialized (
  select t.ctid as address, t.due_at, t.kind, t.biz_id, t.version, t.reason
    from taskledger.timer t
   where t.due_at >= $1::text::timestamptz and t.due_at <= (select least(c.at, $7::text::timestamptz) from clock c)
     and t.kind || '/' || t.biz_id not in (select unnest($5::text::text[])) -- hashed, which = any (array) is not
     and ($6::text = '{}' or t.kind || '/' || t.biz_id in (select unnest($6::text::text[])))
   order by t.due_at, t.kind, t.biz_id, t.version, t.reason
   limit $2::integer
     for update skip locked
), headed as materialized (
  select d.*, h.version as head, h.attempt, h.shard, h.type
    from due d
   cross join lateral (
     select e.version, e.attempt, e.shard, e.type
       from taskledger.event e
      where e.kind = d.kind and e.biz_id = d.biz_id
      order by e.version desc
      limit 1) h
), verdict as materialized (
  select j.*,
         case when j.reason in ('due', 'retry') and j.version = j.head and j.type = any ($3::text::taskledger.event_type[]) then 'released'
              when (j.reason = 'finish_by' or j.reason = 'start_by' and j.attempt = 0) and j.type = any ($4::text::taskledger.event_type[]) then 'expired'
              when j.reason = 'finish_by' and taskledger.state_after(j.type) = 'running' then 'later'
         end as answer
    from headed j
), chosen as materialized (
  select distinct on (v.kind, v.biz_id) v.*
    from verdict v
   where v.answer in ('released', 'expired')
   order by v.kind, v.biz_id, v.answer, v.reason, v.due_at -- expired before released
), tx as materialized (
  select pg_current_xact_id() as xid where exists (select from chosen)
), added as (
  insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data)
  select tx.xid, c.head + 1, c.attempt, c.shard, c.answer::taskledger.event_type, c.kind, c.biz_id, 'scheduler',
         taskledger.with_moment('{"reason":"' || c.reason || '"}', 'due_at', c.due_at)::json
    from tx cross join chosen c
   order by c.kind, c.biz_id
      on conflict (kind, biz_id, version) do nothing
  returning kind, biz_id, type
), kept as materialized (
  select v.address
    from verdict v
   where v.answer = 'expired' and not exists (select from added a where a.kind = v.kind and a.biz_id = v.biz_id)
), moved as (
  update taskledger.timer t
     set due_at = clock_timestamp() + interval '1 second'
   where t.ctid = any (array(select v.address from verdict v where v.answer = 'later'))
), gone as (
  delete from taskledger.timer t
   where t.ctid = any (array(
     select d.address from due d
      where not exists (select from kept k where k.address = d.address)
        and not exists (select from verdict v where v.address = d.address and v.answer = 'later')))
)
select (select (extract(epoch from c.at) * 1e6)::bigint from clock c), count(*), (select count(*) from added a where a.type = 'released'),
       (select count(*) from added a where a.type = 'expired'), (select count(*) from kept),
       case when $6::text = '{}' then 0 else (
         select count(*) from taskledger.timer t
          where t.due_at >= $1::text::timestamptz and t.due_at <= (select least(c.at, $7::text::timestamptz) from clock c)
            and t.kind || '/' || t.biz_id in (select unnest($6::text::text[]))
            and not exists (select from due mine where mine.address = t.ctid)) end,
       (extract(epoch from min(d.due_at)) * 1e6)::bigint, (extract(epoch from max(d.due_at)) * 1e6)::bigint
  from due d
