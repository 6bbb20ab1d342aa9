-- append.sql for the end of a transaction: if the event cannot be appended it fails, so that the commit in the
-- same round trip is not executed. It inserts a null version (not_null_violation) if the task is not as
-- expected or the guard is not set. It fails with unique_violation if another transaction has just inserted
-- the version. This costs half as much as a function that raises an error.
-- $1 kind, $2 biz_id, $3 expected version, $4 actor or null for session_user, $5 data, $6 meta (JSON text or
-- null), $7 the guard: the value of the transaction-local setting taskledger.attempt, which does not survive a
-- commit; $8 type, $9 types that $8 may follow, $10 those of them after which it begins an attempt (text array
-- literals). The caller writes $8 to $10 into the text, so there is a statement for each type: reading them
-- takes a tenth of its time.
-- Returns what the caller does not know of the new event. Waits for a concurrent append to the same task. Locks
-- nothing else.
-- Index: primary key. The xid is drawn before the position: see enqueue.sql.
insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, data, meta)
select e.version + 1, e.attempt + (e.type = any ($10::text::taskledger.event_type[]))::integer, e.shard,
       $8::text::taskledger.event_type, $1::text, $2::text, coalesce($4::text, session_user),
       $5::text::json, $6::text::json
  from (values (1)) one
  left join taskledger.event e
         on e.kind = $1::text and e.biz_id = $2::text and e.version = $3::integer
        and e.type = any ($9::text::taskledger.event_type[])
        and current_setting('taskledger.attempt', true) = $7::text
returning position, attempt, shard, (date_part('epoch', recorded_at) * 1e6)::bigint, session_user,
          case when taskledger.is_awaited() then taskledger.wake() end
