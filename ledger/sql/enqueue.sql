-- Appends version 1 of a task, unless the key exists, args or meta exceed their limit, or too many tasks of
-- the kind wait.
-- $1 kind, $2 biz_id, $3 shard, $4 actor or null for session_user, $5 args (JSON text or null),
-- $6 meta (JSON text or null), $7 version of the args' format, $8 priority, 0 for the default, $9 partition
-- or null.
-- Returns one row, with the position first, or none if nothing was inserted.
-- Waits for a concurrent transaction that inserts the same key. Locks nothing else. Index: primary key.
-- Defaults are computed in the order of the columns: the xid, which is the first one, before the position
-- (see package internal/feed).
insert into taskledger.event (version, attempt, shard, type, data_version, priority, partition, kind, biz_id, actor,
                              data, meta)
select 1, 0, $3::integer, 'enqueued', $7::integer, $8::integer, $9::text, $1::text, $2::text,
       coalesce($4::text, session_user), $5::text::json, $6::text::json
 where coalesce(octet_length($5::text), 0) <= 4096 and coalesce(octet_length($6::text), 0) <= 4096
       and pg_sequence_last_value('taskledger.limits_set'::regclass) is null
    or taskledger_internal.admits($1::text, octet_length($5::text), octet_length($6::text))
    on conflict (kind, biz_id, version) do nothing
returning position, case when taskledger_internal.relay_sleeps() then taskledger_internal.wake(position) end
