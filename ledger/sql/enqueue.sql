-- Appends version 1 of a task, unless the key is taken, args or meta are over the limit,
-- or too many tasks of the kind wait.
-- $1 kind, $2 biz_id, $3 shard, $4 actor or null for session_user, $5 args (JSON text or null),
-- $6 meta (JSON text or null).
-- Answers one row, or none if nothing was inserted.
-- Waits for a concurrent transaction that inserts the same key; locks nothing else.
-- The xid comes from a materialized CTE so that it is older than the position (see page.sql).
with tx as materialized (
  select pg_current_xact_id() as xid
   where octet_length($5::text) <= (select s.value::integer from taskledger.setting s where s.name = 'max_args_bytes') is not false
     and octet_length($6::text) <= (select s.value::integer from taskledger.setting s where s.name = 'max_meta_bytes') is not false
     and not exists (select from taskledger.overload o where o.kind = $1::text and o.waiting >= o.max_waiting)
)
insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
select tx.xid, 1, 0, $3::integer, 'enqueued', $1::text, $2::text, coalesce($4::text, session_user), $5::text::json, $6::text::json
  from tx
    on conflict (kind, biz_id, version) do nothing
returning position
