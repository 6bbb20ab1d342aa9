-- append.sql for many tasks, each at most once.
-- $1 kinds, $2 biz_ids, $3 expected versions, $4 types, $5 actors, $6 data, $7 types each may
-- follow, $8 types after which each begins an attempt (both joined by spaces), $9 metas: text
-- array literals of one length, sorted by key; $10 lock_timeout for this transaction or ''.
-- Answers the rows inserted. Waits for concurrent appends to the same tasks.
-- The lateral limit keeps the planner on the primary key whatever it believes of the table.
with tx as materialized (
  select pg_current_xact_id() as xid, case when $10::text <> '' then set_config('lock_timeout', $10::text, true) end
)
insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
select tx.xid, e.version + 1, e.attempt + (e.type::text = any (string_to_array(r.begins, ' ')))::integer, e.shard,
       r.type::taskledger.event_type, e.kind, e.biz_id, coalesce(r.actor, session_user), r.data::json, r.meta::json
  from tx
 cross join unnest($1::text::text[], $2::text::text[], $3::text::integer[], $4::text::text[], $5::text::text[],
                   $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[])
       with ordinality as r(kind, biz_id, expected, type, actor, data, follows, begins, meta, i)
 cross join lateral (
   select h.kind, h.biz_id, h.version, h.attempt, h.shard, h.type from taskledger.event h
    where h.kind = r.kind and h.biz_id = r.biz_id and h.version = r.expected
    limit 1) e
 where e.type::text = any (string_to_array(r.follows, ' '))
 order by r.i
    on conflict (kind, biz_id, version) do nothing
returning kind, biz_id, position, version, attempt, shard, recorded_at, actor
