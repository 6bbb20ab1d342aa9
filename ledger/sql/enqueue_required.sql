-- enqueue.sql for the end of a transaction: an enqueue that is rejected, or whose task exists with other args, fails,
-- so that the commit in the same round trip is not executed. It inserts a null version (not_null_violation).
-- $1 to $7 as in enqueue.sql, $8 1 if other args are accepted, else 0.
-- Returns one row, or none if the key exists.
-- Waits for a concurrent transaction that inserts the same key. Locks nothing else. Index: primary key.
with added as (
  insert into taskledger.event (version, attempt, shard, type, data_version, kind, biz_id, actor, data, meta)
  select case
           when coalesce(octet_length($5::text), 0) <= 4096 and coalesce(octet_length($6::text), 0) <= 4096
                and not taskledger.has_limits()
             or taskledger.admits($1::text, octet_length($5::text), octet_length($6::text))
             or exists (
               select from taskledger.event e where e.kind = $1::text and e.biz_id = $2::text and e.version = 1)
           then 1
         end,
         0, $3::integer, 'enqueued', $7::integer, $1::text, $2::text, coalesce($4::text, session_user),
         $5::text::json, $6::text::json
      on conflict (kind, biz_id, version) do nothing
  returning position, case when taskledger.relay_sleeps() then taskledger.wake() end as woken
), refused as (
  insert into taskledger.event (version, attempt, shard, type, data_version, kind, biz_id, actor)
  select null, 0, $3::integer, 'enqueued', $7::integer, $1::text, $2::text, coalesce($4::text, session_user)
    from taskledger.existing_tasks(array[$1::text], array[$2::text], array[$5::text]) t
   where $8::integer = 0 and not exists (select from added) and not t.same_args
)
select position, woken from added
