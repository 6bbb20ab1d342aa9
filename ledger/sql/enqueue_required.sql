-- enqueue.sql for the end of a transaction: an enqueue that is rejected, or whose task exists with other args, fails
-- with not_null_violation, so that the commit in the same round trip is not executed. One statement for both would cost
-- each enqueue.sql a twelfth of its time on the server.
-- $1 to $9 as in enqueue.sql, $10 1 if other args are accepted, else 0.
-- Returns the position, or null if the key exists.
-- Waits for a concurrent transaction that inserts the same key. Locks nothing else. Index: primary key.
with added as (
  insert into taskledger.event (version, attempt, shard, type, data_version, priority, partition, kind, biz_id, actor,
                                data, meta)
  select 1, 0, $3::integer, 'enqueued', $7::integer, $8::integer, $9::text, $1::text, $2::text,
         coalesce($4::text, session_user), $5::text::json, $6::text::json
   where coalesce(octet_length($5::text), 0) <= 4096 and coalesce(octet_length($6::text), 0) <= 4096
         and pg_sequence_last_value('taskledger.limits_set'::regclass) is null
      or taskledger_internal.admits($1::text, octet_length($5::text), octet_length($6::text))
      on conflict (kind, biz_id, version) do nothing
  returning position, case when taskledger_internal.relay_sleeps() then taskledger_internal.wake(position) end
)
select coalesce((select a.position from added a),
                taskledger_internal.check_existing($1::text, $2::text, $5::text, $10::integer = 1))
