-- append.sql for the end of a transaction: an append that cannot be is an error, so that the commit
-- sent behind it in the same round trip is not carried out. Where the task is not as expected or
-- the guard is gone there is no version to insert (not_null_violation); where another transaction
-- was first it is taken (unique_violation). Half the cost of raising an error by a function.
-- $1 to $9 as in append.sql; $10 the value that the transaction-local setting
-- taskledger.attempt must still have, which a commit in between would have ended.
-- Waits for a concurrent append to the same task; locks nothing else. Index: primary key.
with tx as materialized (
  select pg_current_xact_id() as xid
)
insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
select tx.xid, e.version + 1, e.attempt + (e.type = any ($8::text::taskledger.event_type[]))::integer, e.shard,
       $4::text::taskledger.event_type, $1::text, $2::text, coalesce($5::text, session_user), $6::text::json, $9::text::json
  from tx
  left join taskledger.event e
         on e.kind = $1::text and e.biz_id = $2::text and e.version = $3::integer
        and e.type = any ($7::text::taskledger.event_type[])
        and current_setting('taskledger.attempt', true) = $10::text
returning position, version, attempt, shard, recorded_at, actor
