-- Writes tasks that are in the table, at the addresses at which tasks_before.sql found them in
-- the same transaction. A row that somebody has changed since is no longer there, and is missing
-- in the number of rows updated.
-- $1 addresses, $2 shards, $3 states, $4 aside (0 or 1), $5 versions, $6 attempts, $7 failures,
-- $8 enqueued_at, $9 updated_at, $10 errors or null, $11 fingerprints or null,
-- $12 due_at or null: text array literals of one length.
-- Locks the rows. Index: none, and the transaction has set enable_seqscan to off, which leaves
-- the planner the addresses only. The updates are HOT: what the usual way of a task changes
-- stands in no index, and half of each page is kept free for them.
update taskledger.task t
   set shard = r.shard, state = r.state::taskledger.task_state, aside = r.aside = 1, version = r.version,
       attempt = r.attempt, failures = r.failures, enqueued_at = r.enqueued_at, updated_at = r.updated_at,
       error = r.error, fingerprint = r.fingerprint, due_at = r.due_at
  from unnest($1::text::tid[], $2::text::smallint[], $3::text::text[], $4::text::integer[], $5::text::integer[],
              $6::text::integer[], $7::text::integer[], $8::text::timestamptz[], $9::text::timestamptz[],
              $10::text::text[], $11::text::text[], $12::text::timestamptz[])
       as r(address, shard, state, aside, version, attempt, failures, enqueued_at, updated_at, error, fingerprint, due_at)
 where t.ctid = r.address
