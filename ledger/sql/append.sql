-- Appends version $3 + 1 of a task, if version $3 exists, is of one of the types $7 and is the
-- last: compare-and-set by the primary key. An empty answer is explained by head.sql.
-- $1 kind, $2 biz_id, $3 expected version, $4 type, $5 actor or null for session_user,
-- $6 data (JSON text or null), $7 types it may follow and $8 types after which it begins an
-- attempt (text array literals), $9 meta (JSON text or null).
-- Waits for a concurrent append to the same task; locks nothing else. Index: primary key.
with tx as materialized (
  select pg_current_xact_id() as xid
)
insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
select tx.xid, e.version + 1, e.attempt + (e.type = any ($8::text::taskledger.event_type[]))::integer, e.shard,
       $4::text::taskledger.event_type, e.kind, e.biz_id, coalesce($5::text, session_user), $6::text::json, $9::text::json
  from tx
  join taskledger.event e on e.kind = $1::text and e.biz_id = $2::text and e.version = $3::integer
 where e.type = any ($7::text::taskledger.event_type[])
    on conflict (kind, biz_id, version) do nothing
returning position, version, attempt, shard, recorded_at, actor
