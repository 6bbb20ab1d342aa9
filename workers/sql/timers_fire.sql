-- Appends the events of timers that are due and removes the timers, or does neither.
-- $1 where in the index to start, $2 how many at most; $3 the types that released and $4 those
-- that expired may follow (text array literals); $5 keys, kind/biz_id, that are left alone, or
-- $6 the only ones that are not ('{}': all others), due until $7 (text array literals).
-- Answers one row: the clock by which it went; how many timers it had in hand, the events
-- released and expired, the timers kept, those of $6 in other hands; due_at of the first and the
-- last in hand, or null.
--
-- released is appended if the event that set the timer is the task's last one. A deadline is
-- about the task: start_by expires one that waits and was never begun, finish_by one that waits.
-- Both of one task: it expires. A finish_by that finds its task at work looks again in a second.
-- Every other timer has nothing to do, and goes.
--
-- A deadline whose task moves on in this moment is kept: it has to look at the new head.
--
-- Locks the timers, stepping over those in other hands; waits for concurrent appends to the
-- tasks, in the order of the keys. Index: primary keys; the transaction has set enable_seqscan
-- and enable_bitmapscan to off (scheduler_settings.sql), since statistics of a table that is now
-- empty, now holds millions mislead. The clock is read before the snapshot's xid is drawn.
with clock as materialized (
  select clock_timestamp() as at
), due as materialized (
  select t.ctid as address, t.due_at, t.kind, t.biz_id, t.version, t.reason
    from taskledger.timer t
   where t.due_at >= $1::text::timestamptz and t.due_at <= (select least(c.at, $7::text::timestamptz) from clock c)
     and t.kind || '/' || t.biz_id not in (select unnest($5::text::text[])) -- hashed, as any array is not
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
select (select c.at from clock c), count(*), (select count(*) from added a where a.type = 'released'),
       (select count(*) from added a where a.type = 'expired'), (select count(*) from kept),
       case when $6::text = '{}' then 0 else (
         select count(*) from taskledger.timer t
          where t.due_at >= $1::text::timestamptz and t.due_at <= (select least(c.at, $7::text::timestamptz) from clock c)
            and t.kind || '/' || t.biz_id in (select unnest($6::text::text[]))
            and not exists (select from due mine where mine.address = t.ctid)) end,
       min(d.due_at), max(d.due_at)
  from due d
