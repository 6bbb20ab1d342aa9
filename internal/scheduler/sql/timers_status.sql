-- The status of all timers.
-- $1 maximum number of due timers to count. Returns one row: how many are due, for how many milliseconds the
-- first one has been due (0: none is), and when the first one is due, or null: tasks with predecessors have none;
-- a time before 1970 as 1970, one after 9998 as 9999.
-- Locks nothing. Index: primary key of timer; dead entries at its low end are stepped over.
with clock as materialized (
  select clock_timestamp() as at
), lowest as materialized (
  select greatest('1970-01-01 00:00:00+00', least(t.due_at, '9999-01-01 00:00:00+00')) as due_at
    from taskledger.timers t
   where t.due_at < taskledger_internal.end_of_time()
   order by t.due_at, t.kind, t.biz_id, t.version, t.reason limit 1
)
select (select count(*) from (
          select from taskledger.timers t
           where t.due_at <= (select c.at from clock c)
           limit $1::integer) due),
       coalesce((select greatest(0, extract(epoch from c.at - l.due_at) * 1000)::bigint from lowest l), 0),
       (select (extract(epoch from l.due_at) * 1e6)::bigint from lowest l)
  from clock c
