-- append.sql for many tasks, each at most once.
-- $1 kinds, $2 biz_ids, $3 expected versions, $4 types, $5 actors, $6 data, $7 types each may
-- follow, $8 types after which each begins an attempt (both joined by spaces), $9 metas: text
-- array literals of one length, sorted by key; $10 lock_timeout for this transaction or '';
-- $11 after how many microseconds and $12 when each is released again: more such arrays.
-- Answers the rows inserted. Waits for concurrent appends to the same tasks.
-- The lateral limit keeps the planner on the primary key whatever it believes of the table.
with tx as materialized (
  select pg_current_xact_id() as xid, case when $10::text <> '' then set_config('lock_timeout', $10::text, true) end
), request as materialized (
  select tx.xid, r.*, case when r.after is not null or r.at is not null then taskledger.due_at(r.after, r.at) end as due_at
    from tx
   cross join unnest($1::text::text[], $2::text::text[], $3::text::integer[], $4::text::text[], $5::text::text[],
                     $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[], $11::text::bigint[], $12::text::timestamptz[])
         with ordinality as r(kind, biz_id, expected, type, actor, data, follows, begins, meta, after, at, i)
), added as (
  insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
  select r.xid, e.version + 1, e.attempt + (e.type::text = any (string_to_array(r.begins, ' ')))::integer, e.shard,
         r.type::taskledger.event_type, e.kind, e.biz_id, coalesce(r.actor, session_user),
         case when r.due_at is null then r.data
              else taskledger.with_moment(r.data, case r.type when 'failed' then 'retry_at' else 'run_at' end, r.due_at) end::json,
         r.meta::json
    from request r
   cross join lateral (
     select h.kind, h.biz_id, h.version, h.attempt, h.shard, h.type from taskledger.event h
      where h.kind = r.kind and h.biz_id = r.biz_id and h.version = r.expected
      limit 1) e
   where e.type::text = any (string_to_array(r.follows, ' '))
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
