-- append_many.sql for tasks whose last events the caller has read, and without due times. Searching for these events,
-- and the columns that the caller knows, take a third of that statement.
-- Of each request, sorted by key: $1 number of its rule, from 1, $2 biz_id, $3 expected version, $4 shard, $5 data,
-- $6 meta: array literals; $5 and $6 may be shorter, which means null.
-- Of each rule, which many requests share: $7 kind, $8 type, $9 actor ('' or null for session_user), $10 attempt of the
-- new events: array literals. $13 priority of the new events (0 or null for the default): an array literal that may be
-- shorter.
-- $14 partitions of the requests ('' or null: none): an array literal that may be shorter.
-- $11 lock_timeout for this transaction. $12 the value of session_incarnation() when the last events were
-- read: if it differs, one of them may be lost, and nothing is inserted.
-- $15 the lowest position at which each task had an event when it was read: if tasks with events from there on may have
-- been removed, nothing is inserted (see migrations/00023_archive.sql).
-- $16 order keys of the requests ('' or null: none): an array literal that may be shorter.
-- Returns a row with the login, and then positions and times of all events, in the order of the requests.
-- Waits for concurrent appends to the same tasks, and fails (unique_violation) if one of them commits, or if another
-- event followed the event that the caller has read. Locks nothing else. Index: none.
-- Subqueries and the lateral limit: see append_many.sql.
with tx as materialized (
  select pg_current_xact_id() as xid,
         taskledger_internal.session_login() as login_id,
         set_config('lock_timeout', $11::text, true),
         case when taskledger_internal.is_awaited() or $16::text <> '{}' then taskledger_internal.wake() end as woken,
         case when not $8::text::text[] <@ '{succeeded,failed,interrupted,snoozed}'::text[]
              then taskledger_internal.commit_durably() end,
         coalesce(taskledger_internal.session_incarnation() = $12::text, false)
           and taskledger_internal.archived_until() < $15::bigint as is_unharmed
), rule as materialized (
  select r.i, r.kind, r.type::taskledger.event_type, coalesce(nullif(r.actor, ''), session_user) as actor, r.attempt,
         coalesce(r.priority, 0) as priority
    from unnest((select $7::text::text[]), (select $8::text::text[]), (select $9::text::text[]),
                (select $10::text::integer[]), (select $13::text::smallint[]))
         with ordinality as r(kind, type, actor, attempt, priority, i)
), added as (
  insert into taskledger.event (version, attempt, shard, type, login_id, priority, partition, kind, biz_id,
                                order_key, actor, data, meta)
  select r.expected + 1, rule.attempt, r.shard, rule.type, tx.login_id, rule.priority, nullif(r.partition, ''),
         rule.kind, r.biz_id, nullif(r.order_key, ''), rule.actor, r.data::json, r.meta::json
    from tx
   cross join unnest((select $1::text::integer[]), (select $2::text::text[]), (select $3::text::integer[]),
                     (select $4::text::smallint[]), (select $5::text::text[]), (select $6::text::text[]),
                     (select $14::text::text[]), (select $16::text::text[]))
         with ordinality as r(rule, biz_id, expected, shard, data, meta, partition, order_key, i)
   cross join lateral (select * from rule where rule.i = r.rule limit 1) rule
   where tx.is_unharmed
   order by r.i
  returning position, recorded_at
)
select 0::bigint, 0::bigint, session_user::text
union all
select a.position, (date_part('epoch', a.recorded_at) * 1e6)::bigint, null
  from added a
