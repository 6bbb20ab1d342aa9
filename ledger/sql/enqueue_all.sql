-- As enqueue_many.sql, and for tasks with a due time, deadlines, predecessors or an order key, and of kinds whose
-- limit is reached and discards. Tasks that need none of this take twice as long as by enqueue_many.sql.
-- $1 to $10 as there; $11 microseconds after which the task is due, $12 due time, $13 deadline of the first
-- attempt, $14 deadline of the task (null if not set), $15 whether the meta has predecessors, $16 order key ('' or
-- null: none), $17 whether the task is left out if its key is archived: text array literals of the same length; $16
-- and $17 may be shorter.
-- Returns the tasks that were inserted, with the type of their last event: scheduled if due in the future, or with
-- predecessors; else lined_up with an order key; discarded if the limit is reached. The times are written into the
-- metas and as timers. A deadline that has passed is a timer that is due now. The timer of a task with predecessors is
-- at the end of time.
-- Waits for concurrent transactions that insert the same keys. Locks nothing else. Index: primary key.
-- The xid is drawn before the clock is read (see table timer). The second event of a discarded task is inserted from
-- the row of the first, so its position is higher.
with entry as materialized (
  select e.*, row_number() over (partition by e.kind, e.biz_id order by e.i) as nth
    from unnest($1::text::text[], $2::text::text[], $3::text::integer[],
                $4::text::text[], $5::text::text[], $6::text::text[],
                $8::text::smallint[], $9::text::smallint[], $10::text::text[],
                $11::text::bigint[], $12::text::timestamptz[], $13::text::timestamptz[], $14::text::timestamptz[],
                $15::text::boolean[], $16::text::text[], $17::text::boolean[])
         with ordinality as e(kind, biz_id, shard, actor, args, meta, data_version, priority, partition,
                              run_after, run_at, start_by, finish_by, has_predecessors, order_key, checks_archive, i)
), limits as materialized (
  select max(s.value::integer) filter (where s.name = 'max_args_bytes') as args,
         max(s.value::integer) filter (where s.name = 'max_meta_bytes') as meta
    from taskledger.setting s
), full_kind as materialized (
  select o.kind, o.policy, o.closed
    from taskledger.overload o
   where (o.closed or o.closed_later) and $7::integer = 0
), tx as materialized (
  select pg_current_xact_id() as xid,
         taskledger_internal.session_login() as login_id, taskledger_internal.wake()
   where not exists (
     select from entry e join full_kind f on f.kind = e.kind
      where f.policy <> 'discard'
        and (f.closed or e.has_predecessors or e.order_key <> '' or e.run_after is not null
             or e.run_at > clock_timestamp()))
     and not exists (
     select from entry e cross join limits
      where octet_length(e.args) > limits.args or octet_length(e.meta) > limits.meta)
), timed as materialized (
  select tx.xid, tx.login_id, e.*,
         case when e.has_predecessors then null
              when e.run_at is null or e.run_at > clock_timestamp()
              then taskledger_internal.due_at(e.run_after, e.run_at) end as due_at
    from tx cross join entry e
   where e.nth = 1
     and case when e.checks_archive then taskledger_internal.archived_version(e.kind, e.biz_id) is null else true end
), added as (
  insert into taskledger.event (version, attempt, shard, type, login_id, data_version, priority, partition, kind,
                                biz_id, order_key, actor, data, meta)
  select 1, 0, t.shard, case when t.due_at is not null or t.has_predecessors then 'scheduled'
                             when nullif(t.order_key, '') is null then 'enqueued' else 'lined_up'
                        end::taskledger.event_type,
         t.login_id, t.data_version, coalesce(t.priority, 0), nullif(t.partition, ''), t.kind, t.biz_id,
         nullif(t.order_key, ''), coalesce(nullif(t.actor, ''), session_user), t.args::json,
         taskledger_internal.with_times(t.meta, t.due_at, t.start_by, t.finish_by)::json
    from timed t
   order by t.i
      on conflict (kind, biz_id, version) do nothing
  returning kind, biz_id, position, type
), discarded as (
  insert into taskledger.event (version, attempt, shard, type, login_id, priority, partition, kind, biz_id, order_key,
                                actor, data)
  select 2, 0, t.shard, 'discarded', t.login_id, coalesce(t.priority, 0), nullif(t.partition, ''), a.kind, a.biz_id,
         nullif(t.order_key, ''), coalesce(nullif(t.actor, ''), session_user),
         '{"reason":"too many tasks of its kind wait"}'
    from added a
    join timed t on t.kind = a.kind and t.biz_id = a.biz_id
    join full_kind f on f.kind = a.kind and (f.closed or a.type <> 'enqueued')
  returning kind, biz_id, type
), timers as (
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select taskledger_internal.due_at(null, r.at), a.kind, a.biz_id, 1, r.reason
    from added a
    join timed t on t.kind = a.kind and t.biz_id = a.biz_id
   cross join lateral (values (t.due_at, 'due'), (t.start_by, 'start_by'), (t.finish_by, 'finish_by'),
                      (case when t.has_predecessors then taskledger_internal.end_of_time() end, 'after')) r(at, reason)
   where r.at is not null and not exists (
     select from discarded d where d.kind = a.kind and d.biz_id = a.biz_id)
)
select a.kind, a.biz_id, a.position, coalesce(d.type, a.type)::text
  from added a
  left join discarded d on d.kind = a.kind and d.biz_id = a.biz_id
