-- append.sql for many tasks. A task occurs at most once.
-- Of each request, sorted by key: $1 number of its rule, from 1, $2 biz_id, $3 expected version, $4 data,
-- $5 meta: array literals; $4 and $5 may be shorter, which means null.
-- Of each rule, which many requests share: $6 kind, $7 type, $8 actor ('' or null for session_user), $9 types that $7
-- may follow, $10 the types among them after which it begins an attempt (both joined by spaces): array literals.
-- Of each request with a due time: $11 its number, from 1, $12 microseconds after which or $13 time at which
-- the task is released, $15 the task's priority from now on (0 or null to keep it): array literals.
-- $14 lock_timeout for this transaction, or '' to keep it.
-- Returns the events that were inserted. A request whose task is not as expected inserts nothing.
-- Waits for concurrent appends to the same tasks, and fails (unique_violation) if one of them commits: with "on
-- conflict do nothing" the insert would cost a fifth more per row. Locks nothing else. Index: primary key.
-- The lateral limit makes the planner use the primary key, whatever its statistics. The lateral limit of the rules,
-- which are few, saves a hash of the requests and their order. The subqueries hide the lists from the planner, so that
-- one plan serves all of them: planning costs as much as appending ten events.
with tx as materialized (
  select pg_current_xact_id() as xid,
         taskledger_internal.session_login() as login_id,
         case when $14::text <> '' then set_config('lock_timeout', $14::text, true) end,
         case when taskledger_internal.is_awaited() then taskledger_internal.wake() end as woken,
         case when not $7::text::text[] <@ '{succeeded,failed,interrupted,snoozed}'::text[]
              then taskledger_internal.commit_durably() end
), rule as materialized (
  select r.i, r.kind, r.type::taskledger.event_type, r.actor,
         string_to_array(r.follows, ' ')::taskledger.event_type[] as follows,
         string_to_array(r.begins, ' ')::taskledger.event_type[] as begins
    from unnest((select $6::text::text[]), (select $7::text::text[]), (select $8::text::text[]),
                (select $9::text::text[]), (select $10::text::text[]))
         with ordinality as r(kind, type, actor, follows, begins, i)
), due as materialized (
  select tx.xid, d.i, d.priority, taskledger_internal.due_at(d.after, d.at) as at
    from tx
   cross join unnest((select $11::text::integer[]), (select $12::text::bigint[]), (select $13::text::timestamptz[]),
                     (select $15::text::smallint[]))
         as d(i, after, at, priority)
), added as (
  insert into taskledger.event (version, attempt, shard, type, login_id, priority, partition, kind, biz_id,
                                order_key, actor, data, meta)
  select r.expected + 1, e.attempt + (e.type = any (rule.begins))::integer, e.shard,
         taskledger_internal.type_in_line(rule.type, e.type, e.order_key), tx.login_id,
         coalesce(nullif(due.priority, 0), e.priority), e.partition, rule.kind, r.biz_id, e.order_key,
         coalesce(nullif(rule.actor, ''), session_user),
         case when due.at is null then r.data
              else taskledger_internal.with_moment(
                     r.data, case rule.type when 'failed' then 'retry_at' else 'run_at' end, due.at) end::json,
         r.meta::json
    from tx
   cross join unnest((select $1::text::integer[]), (select $2::text::text[]), (select $3::text::integer[]),
                     (select $4::text::text[]), (select $5::text::text[]))
         with ordinality as r(rule, biz_id, expected, data, meta, i)
   cross join lateral (select * from rule where rule.i = r.rule limit 1) rule
    left join due on due.i = r.i
   cross join lateral (
     select h.version, h.attempt, h.shard, h.type, h.priority, h.partition, h.order_key from taskledger.event h
      where h.kind = rule.kind and h.biz_id = r.biz_id and h.version >= r.expected
      order by h.version desc
      limit 1) e
   where e.version = r.expected and e.type = any (rule.follows)
     and (r.expected > 1 or taskledger_internal.archived_version(rule.kind, r.biz_id) is null)
     and (rule.type <> 'released' or e.type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')
          or taskledger_internal.still_ends(rule.kind, r.biz_id, r.expected, true))
   order by r.i
  returning kind, biz_id, position, version, attempt, shard, type, priority, partition, order_key, recorded_at, actor,
            data, case when order_key is not null then taskledger_internal.wake() end
), timed as (
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select due.at, a.kind, a.biz_id, a.version, case a.type when 'failed' then 'retry' else 'due' end
    from due
    join unnest((select $1::text::integer[]), (select $2::text::text[])) with ordinality as r(rule, biz_id, i)
      on r.i = due.i
    join rule on rule.i = r.rule
    join added a on a.kind = rule.kind and a.biz_id = r.biz_id
)
select a.kind, a.biz_id, a.position, a.version, a.attempt, a.shard, a.type::text, a.priority,
       coalesce(a.partition, ''), coalesce(a.order_key, ''),
       (date_part('epoch', a.recorded_at) * 1e6)::bigint, a.actor, session_user::text,
       case when a.type in ('scheduled', 'failed', 'snoozed') then a.data::text end
  from added a
