-- append.sql for many tasks, each at most once.
-- $1 kinds, $2 biz_ids, $3 expected versions, $4 which of the types in $10, from 1, $5 actors,
-- $6 data, $7 metas, $8 after how many microseconds and $9 when each is released again: text array
-- literals of one length, sorted by key; $10 types, $11 the types each may follow and $12 those
-- after which it begins an attempt (both joined by spaces): text array literals of one length;
-- $13 lock_timeout for this transaction or ''.
-- Answers the rows inserted. Waits for concurrent appends to the same tasks.
-- The lateral limit keeps the planner on the primary key whatever it believes of the table.
with tx as materialized (
  select pg_current_xact_id() as xid, case when $13::text <> '' then set_config('lock_timeout', $13::text, true) end
), rule as materialized (
  select t.i, t.type::taskledger.event_type, string_to_array(t.follows, ' ')::taskledger.event_type[] as follows,
         string_to_array(t.begins, ' ')::taskledger.event_type[] as begins
    from unnest($10::text::text[], $11::text::text[], $12::text::text[]) with ordinality as t(type, follows, begins, i)
), request as materialized (
  select tx.xid, r.*, case when r.after is not null or r.at is not null then taskledger.due_at(r.after, r.at) end as due_at
    from tx
   cross join unnest($1::text::text[], $2::text::text[], $3::text::integer[], $4::text::integer[], $5::text::text[],
                     $6::text::text[], $7::text::text[], $8::text::bigint[], $9::text::timestamptz[])
         with ordinality as r(kind, biz_id, expected, rule, actor, data, meta, after, at, i)
), added as (
  insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
  select r.xid, e.version + 1, e.attempt + (e.type = any (rule.begins))::integer, e.shard, rule.type, e.kind, e.biz_id,
         coalesce(r.actor, session_user),
         case when r.due_at is null then r.data
              else taskledger.with_moment(r.data, case rule.type when 'failed' then 'retry_at' else 'run_at' end, r.due_at) end::json,
         r.meta::json
    from request r
    join rule on rule.i = r.rule
   cross join lateral (
     select h.kind, h.biz_id, h.version, h.attempt, h.shard, h.type from taskledger.event h
      where h.kind = r.kind and h.biz_id = r.biz_id and h.version = r.expected
      limit 1) e
   where e.type = any (rule.follows)
   order by r.i
      on conflict (kind, biz_id, version) do nothing
  returning kind, biz_id, position, version, attempt, shard, type, recorded_at, actor, data
), timed as (
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select r.due_at, a.kind, a.biz_id, a.version, case a.type when 'failed' then 'retry' else 'due' end
    from request r
    join added a on a.kind = r.kind and a.biz_id = r.biz_id
   where r.due_at is not null
)
select a.kind, a.biz_id, a.position, a.version, a.attempt, a.shard, a.recorded_at, a.actor,
       case when a.type in ('scheduled', 'failed', 'snoozed') then a.data::text end
  from added a
