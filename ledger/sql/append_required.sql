-- append.sql for the end of a transaction: an append that inserts nothing is an error (TL001),
-- so that the commit sent behind it in the same round trip is not carried out.
-- $1 to $9 as in append.sql; $10 the value that the transaction-local setting
-- taskledger.attempt must still have, which a commit in between would have ended.
with tx as materialized (
  select pg_current_xact_id() as xid
   where current_setting('taskledger.attempt', true) = $10::text
), added as (
  insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
  select tx.xid, e.version + 1, e.attempt + (e.type = any ($8::text::taskledger.event_type[]))::integer, e.shard,
         $4::text::taskledger.event_type, e.kind, e.biz_id, coalesce($5::text, session_user), $6::text::json, $9::text::json
    from tx
    join taskledger.event e on e.kind = $1::text and e.biz_id = $2::text and e.version = $3::integer
   where e.type = any ($7::text::taskledger.event_type[])
      on conflict (kind, biz_id, version) do nothing
  returning position, version, attempt, shard, recorded_at, actor
)
select a.position, a.version, a.attempt, a.shard, a.recorded_at, a.actor
  from (select count(*) as appended from added) c
 cross join lateral taskledger.require_appended(c.appended)
  join added a on true
