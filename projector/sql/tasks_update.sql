-- Updates tasks at the addresses that tasks_before.sql returned in the same transaction. A row that another
-- transaction has changed since is no longer there, so the number of updated rows is lower. Shard and
-- enqueued_at are those of the first event and never change.
-- $1 addresses, $2 states, $3 aside (0 or 1), $4 versions, $5 attempts, $6 failures, $7 updated_at in
-- microseconds since 1970 (see tasks_insert.sql), $8 errors, $9 fingerprints, $10 due_at: array literals. The
-- last three (for null), $3, $5 and $6 (for 0) may be shorter.
-- Locks the rows. Index: none. The transaction has set enable_seqscan to off, which leaves the planner the
-- addresses only. The updates are HOT: on the usual way of a task no indexed column changes, and half of each
-- page is kept free for them.
update taskledger.task t
   set state = r.state::taskledger.task_state, aside = coalesce(r.aside, 0) = 1, version = r.version,
       attempt = coalesce(r.attempt, 0), failures = coalesce(r.failures, 0),
       updated_at = 'epoch'::timestamptz + r.updated_at * interval '1 microsecond',
       error = nullif(r.error, ''), fingerprint = nullif(r.fingerprint, ''), due_at = r.due_at,
       lingering = t.lingering and r.state in ('available', 'running')
  from unnest($1::text::tid[], $2::text::text[], $3::text::integer[], $4::text::integer[], $5::text::integer[],
              $6::text::integer[], $7::text::bigint[], $8::text::text[], $9::text::text[], $10::text::timestamptz[])
       as r(address, state, aside, version, attempt, failures, updated_at, error, fingerprint, due_at)
 where t.ctid = r.address
