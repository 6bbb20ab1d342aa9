-- Updates tasks at the addresses that tasks_before.sql returned in the same transaction, or that tasks_insert.sql
-- returned in an earlier one. A row that has been changed or moved since is no longer there, and a different row may
-- be: a row is updated only if key and version match. Otherwise the number of updated rows is lower. Shard and
-- enqueued_at come from the first event and never change.
-- $1 addresses, $2 kinds, $3 biz_ids, $4 versions of the rows, $5 states, $6 aside (0 or 1), $7 versions, $8 attempts,
-- $9 failures, $10 updated_at in microseconds since 1970 (see tasks_insert.sql), $11 errors, $12 fingerprints, $13
-- due_at, $14 priorities (0 or null: normal), $15 partitions ('' or null: none): array literals. The last five (for
-- null), $6, $8 and $9 (for 0) may be shorter. $2 to $4 may be empty if all addresses are of this transaction: then
-- nothing is compared.
-- Locks the rows. Index: none. The transaction has set enable_seqscan to off, which leaves the planner the addresses
-- only: "is not distinct from" uses no index, and nothing else joins. The updates are HOT: on the usual way of a task
-- no indexed column changes, and half of each page is kept free for them.
update taskledger.task t
   set state = r.state::taskledger.task_state,
       aside = case when r.aside = 1 then r.state::taskledger.task_state end, version = r.version,
       attempt = coalesce(r.attempt, 0), failures = coalesce(r.failures, 0),
       updated_at = 'epoch'::timestamptz + r.updated_at * interval '1 microsecond',
       error = nullif(r.error, ''), fingerprint = nullif(r.fingerprint, ''), due_at = r.due_at,
       priority = coalesce(nullif(r.priority, 0), 3), partition = coalesce(r.partition, ''),
       lingering = case when r.state in ('available', 'running') then t.lingering end
  from unnest($1::text::tid[], $2::text::text[], $3::text::text[], $4::text::integer[], $5::text::text[],
              $6::text::integer[], $7::text::integer[], $8::text::integer[], $9::text::integer[], $10::text::bigint[],
              $11::text::text[], $12::text::text[], $13::text::timestamptz[], $14::text::smallint[],
              $15::text::text[])
       as r(address, kind, biz_id, before, state, aside, version, attempt, failures, updated_at,
            error, fingerprint, due_at, priority, partition)
 where t.ctid = r.address
   and (r.kind is null or (t.version, t.biz_id, t.kind) is not distinct from (r.before, r.biz_id, r.kind))
