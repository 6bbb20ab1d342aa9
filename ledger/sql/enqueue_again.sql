-- Enqueues the next runs of finished tasks, replaces the args of tasks that have not begun, and lets runs follow those
-- that have, by taskledger_internal.enqueue_again. First it decides about all entries: if one is too large, or the
-- limit of its kind is reached, it writes nothing.
-- $1 kinds, $2 biz_ids, $3 args, $4 metas, $5 actors ('' or null for session_user), $6 versions of the args' formats,
-- $7 microseconds after which the task is due, $8 due time, $9 deadline of the first attempt, $10 deadline of the task
-- (null if not set), $11 rerun, replace or follow, or another text for an entry that is only decided about, $12
-- priorities, $13 partitions ('' or null: none), $14 whether this statement writes the entry, $15 whether it has
-- predecessors, $16 and $17 the microseconds of DeferAtMost and ThrottleFor (null if not set), $18 order keys ('' or
-- null: none), $19 whether the line goes on if the task is dead: text array literals of one length ($13 and $18 may be
-- shorter), sorted by key as for enqueue_many.sql. $20 is 1 if the entries have been decided about, 2 if tasks that do
-- not exist are inserted afterwards, else 0.
-- Returns a row for each task with a new event: its number in the lists, from 1, position, version and type of the
-- event. Or it returns a row with position 0 for an entry that must not be written: with policy, waiting tasks, limit
-- and delay of its kind; or with the size of its args, and the limits of args and meta.
-- If a task has finished since the decision, and the limit of its kind is reached, the statement fails with SQLSTATE
-- 53400.
-- Waits for concurrent transactions that append to the same tasks. Locks nothing else. Indexes: primary key, event_run.
with entry as materialized (
  select e.*
    from unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
                $6::text::integer[], $7::text::bigint[], $8::text::timestamptz[], $9::text::timestamptz[],
                $10::text::timestamptz[], $11::text::text[], $12::text::integer[], $13::text::text[],
                $14::text::boolean[], $15::text::boolean[], $16::text::bigint[], $17::text::bigint[], $18::text::text[],
                $19::text::boolean[])
         with ordinality as e(kind, biz_id, args, meta, actor, data_version, run_after, run_at, start_by, finish_by,
                              if_exists, priority, partition, is_written, waits, defer_us, throttle_us, order_key,
                              pass_if_dead, i)
), oversize as materialized (
  select e.i, octet_length(e.args) as args, limits.args as max_args, limits.meta as max_meta
    from entry e
   cross join (
     select max(s.value::integer) filter (where s.name = 'max_args_bytes') as args,
            max(s.value::integer) filter (where s.name = 'max_meta_bytes') as meta
       from taskledger.setting s) limits
   where $20::integer <> 1 and greatest(octet_length(e.args), octet_length(e.meta)) > 4096 -- the least limit
     and (octet_length(e.args) > limits.args or octet_length(e.meta) > limits.meta)
   order by e.i
   limit 1
), overfull as materialized (
  select f.i, f.policy, f.waiting, f.max_waiting, f.retry_after_ms
    from taskledger_internal.overfull_entry(
           $1::text::text[], $2::text::text[], $11::text::text[],
           array(select e.waits or e.throttle_us > 0 or e.run_after > 0 or e.order_key <> ''
                        or coalesce(e.run_at > clock_timestamp(), false)
                   from entry e order by e.i), $20::integer = 2) f
   where $20::integer <> 1 and pg_sequence_last_value('taskledger.limits_set'::regclass) is not null
)
select e.i, a.position, a.version, a.type::text, '' as policy, 0::bigint as waiting, 0::bigint as max_waiting,
       0::bigint as retry_after_ms, 0 as args, 0 as max_args, 0 as max_meta
  from entry e
 cross join lateral taskledger_internal.enqueue_again(
   e.kind, e.biz_id, e.if_exists, e.args, e.meta, e.actor, e.data_version, e.priority, e.partition, e.run_after,
   e.run_at, e.start_by, e.finish_by, e.defer_us, e.throttle_us, nullif(e.order_key, ''), e.pass_if_dead) a
 where e.is_written and not exists (select from oversize) and not exists (select from overfull)
       and a.position is not null
 union all
select o.i, 0, 0, '', '', 0, 0, 0, coalesce(o.args, 0), o.max_args, o.max_meta
  from oversize o
 union all
select f.i, 0, 0, '', f.policy, f.waiting, f.max_waiting, f.retry_after_ms, 0, 0, 0
  from overfull f
 where not exists (select from oversize)
