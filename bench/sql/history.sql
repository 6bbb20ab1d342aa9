-- Inserts finished tasks with the events enqueued and succeeded, as the ledger does. The xid comes from a
-- materialized CTE so that it is older than the positions. $1 number before the first task, $2 of the
-- last task, $3 their args (JSON text). The login is looked up once.
-- Locks only the inserted rows.
with tx as materialized (
  select pg_current_xact_id() as xid, taskledger_internal.login_id() as login_id
)
insert into taskledger.event (xid, version, attempt, shard, type, login_id, kind, biz_id, actor, data)
select tx.xid, v.version, v.version - 1, t.shard, v.type::taskledger.event_type, tx.login_id, 'bench.history',
       t.biz_id, session_user,
       case v.version when 1 then $3::text::json end
  from tx
 cross join generate_series($1::bigint + 1, $2::bigint) i
 cross join lateral (select 'history-' || to_char(i, 'fm00000000') as biz_id) n
 cross join lateral (select n.biz_id, taskledger.shard_of(n.biz_id) as shard) t
 cross join (values (1, 'enqueued'), (2, 'succeeded')) v(version, type)
