-- enqueue_again.sql for one entry whose args and meta have at most 4096 bytes each, before an attempt to insert it: a
-- third of its time on the server.
-- $1 kind, $2 biz_id, $3 rerun, replace or follow, $4 args, $5 meta, $6 actor (null for session_user), $7 version of
-- the args' format, $8 priority, $9 partition, $10 microseconds after which the task is due, $11 due time, $12 deadline
-- of the first attempt, $13 deadline of the task, $14 and $15 the microseconds of DeferAtMost and ThrottleFor, $16
-- order key (null if not set), $17 1 if the line goes on if the task is dead, plus 2 if it has predecessors.
-- Returns position, version and type of the new event, or no row if nothing was written. Or it returns a row with
-- position 0 if the limit of the kind is reached: with policy, waiting tasks, limit and delay.
-- If the task has finished since the decision, and the limit of its kind is reached, the statement fails with SQLSTATE
-- 53400.
-- Waits for concurrent transactions that append to the same task. Locks nothing else. Indexes: primary key, event_run.
with overfull as materialized (
  select f.policy, f.waiting, f.max_waiting, f.retry_after_ms
    from taskledger_internal.overfull_entry(
           array[$1::text], array[$2::text], array[$3::text],
           array[$17::integer >= 2 or $16::text is not null or coalesce($15::text::bigint > 0, false)
                 or coalesce($10::text::bigint > 0, false)
                 or coalesce($11::text::timestamptz > clock_timestamp(), false)], true) f
   where pg_sequence_last_value('taskledger.limits_set'::regclass) is not null
)
select a.position, a.version, a.type::text, '' as policy, 0::bigint as waiting, 0::bigint as max_waiting,
       0::bigint as retry_after_ms
  from taskledger_internal.enqueue_again(
    $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::integer, $8::integer, $9::text, $10::text::bigint,
    $11::text::timestamptz, $12::text::timestamptz, $13::text::timestamptz, $14::text::bigint, $15::text::bigint,
    $16::text, $17::integer % 2 = 1) a
 where a.position is not null and not exists (select from overfull)
 union all
select 0, 0, '', f.policy, f.waiting, f.max_waiting, f.retry_after_ms
  from overfull f
