-- Selects a worker's view of the database, the dispatcher and kinds.
-- Returns session_incarnation() ('' before the first feed or on a standby); the database's clock; whether a process
-- waits for outcomes; the dispatcher's epoch, public key (hex) and latency in microseconds (0, '' and 0 before the
-- first dispatcher); and one kind with a condition in each row:
-- 'paused': by an operator; 'claimed': live workers claim its tasks instead of asking the dispatcher;
-- 'shed': its oldest waiting tasks are or may soon be discarded, because at least half of the limit is waiting;
-- 'permit': with a concurrency limit that has one count and no rate; 'gated': with another limit that has permits;
-- 'limited': with a limit that has none.
-- Without such kinds, one row with the kind ''.
-- Locks nothing. Reads the small tables of pauses, leases and limits, and one row for each count.
select case when pg_is_in_recovery() then '' else coalesce(taskledger_internal.session_incarnation(), '') end,
       (date_part('epoch', clock_timestamp()) * 1e6)::bigint,
       coalesce((select taskledger_internal.is_awaited()), false),
       coalesce(d.epoch, 0), coalesce(d.key, ''), coalesce(d.latency_us, 0),
       coalesce(k.kind, ''), coalesce(k.is, '')
  from (select) always
  left join taskledger_internal.dispatcher d on true
  left join (
   select p.kind, 'paused' as is
     from taskledger.paused_kinds p
   union all
   select c.kind, 'claimed'
     from taskledger_internal.claimed_kinds c
   union all
   select l.kind, case when not l.has_permits then 'limited' when l.is_plain then 'permit' else 'gated' end
     from taskledger_internal.limited_kinds l
   union all
   select o.kind, 'shed'
     from taskledger.overload o
    where o.policy = 'discard_oldest' and 2 * o.waiting >= o.max_waiting) k on true
