-- Selects the state of the database, of the dispatcher and of kinds, for a worker.
-- Returns the database's session_incarnation() ('' before the first feed or on a standby) and clock;
-- whether a process waits for outcomes; the dispatcher's epoch, public key (hex) and latency in microseconds (0, ''
-- and 0 if none has begun yet); and in each row a kind with one of its conditions:
-- 'paused': an operator has paused it; 'claimed': live workers claim its tasks and do not ask the dispatcher for them;
-- 'shed': its oldest waiting tasks are discarded, or soon may be, because at least half of the limit waits;
-- 'gated': it has a concurrency limit; 'limited': it has a limit of how many tasks start in a period.
-- Without such kinds, one row with '' as kind.
-- Locks nothing. Reads the small tables of pauses, of leases and of limits; a count is one row of its key.
select case when pg_is_in_recovery() then '' else coalesce(taskledger_internal.session_incarnation(), '') end,
       (date_part('epoch', clock_timestamp()) * 1e6)::bigint,
       coalesce((select taskledger_internal.is_awaited()), false),
       coalesce(d.epoch, 0), coalesce(d.key, ''), coalesce(d.latency_us, 0),
       coalesce(k.kind, ''), coalesce(k.is, '')
  from (select) always
  left join taskledger.dispatcher d on true
  left join (
   select p.kind, 'paused' as is
     from taskledger.paused_kinds p
   union all
   select c.kind, 'claimed'
     from taskledger.claimed_kinds c
   union all
   select l.kind, case when l.has_permits then 'gated' else 'limited' end
     from taskledger.limited_kinds l
   union all
   select o.kind, 'shed'
     from taskledger.overload o
    where o.policy = 'discard_oldest' and 2 * o.waiting >= o.max_waiting) k on true
