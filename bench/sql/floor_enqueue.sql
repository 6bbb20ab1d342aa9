-- Inserts version 1 of a task, as the ledger's enqueue did in commit 3f4d70b.
-- $1 kind, $2 biz_id, $3 shard, $4 actor or null for session_user, $5 args (JSON text or null), $6 meta (JSON text or
-- null). Waits for a concurrent transaction that inserts the same key.
insert into floor.event (version, attempt, shard, type, kind, biz_id, actor, data, meta)
select 1, 0, $3::integer, 'enqueued', $1::text, $2::text, coalesce($4::text, session_user), $5::text::json,
       $6::text::json
 where coalesce(octet_length($5::text), 0) <= 4096 and coalesce(octet_length($6::text), 0) <= 4096
       and not exists (select from floor.kind_limit l where l.kind = $1::text)
    on conflict (kind, biz_id, version) do nothing
returning position
