-- Inserts tasks that are new to the table. It is a plain insert and not an upsert, which would cost half as
-- much again: the transaction is the only writer (see tasks_before.sql).
-- $1 kinds, $2 biz_ids, $3 shards, $4 enqueued_at, $5 states, $6 aside (0 or 1), $7 versions, $8 attempts, $9
-- failures, $10 updated_at, $11 errors, $12 fingerprints, $13 due_at, $14 priorities (0 or null: normal), $15
-- partitions, $16 causes: array literals, sorted by key. $6, $8, $9 (for 0) and the last six (for null) may be shorter.
-- $4 and $10 are microseconds since 1970, which are cheaper than the text of a timestamp, and exact until the year
-- 2255.
-- Returns the addresses of the rows, in the order of the arrays.
insert into taskledger.task
       (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at,
        error, fingerprint, due_at, priority, partition, cause)
select r.kind, r.biz_id, r.shard, r.state::taskledger.task_state,
       case when r.aside = 1 then r.state::taskledger.task_state end, r.version,
       coalesce(r.attempt, 0), coalesce(r.failures, 0),
       'epoch'::timestamptz + r.enqueued_at * interval '1 microsecond',
       'epoch'::timestamptz + r.updated_at * interval '1 microsecond',
       nullif(r.error, ''), nullif(r.fingerprint, ''), r.due_at, coalesce(nullif(r.priority, 0), 3),
       coalesce(r.partition, ''), nullif(r.cause, '')
  from unnest($1::text::text[], $2::text::text[], $3::text::smallint[], $4::text::bigint[], $5::text::text[],
              $6::text::integer[], $7::text::integer[], $8::text::integer[], $9::text::integer[], $10::text::bigint[],
              $11::text::text[], $12::text::text[], $13::text::timestamptz[], $14::text::smallint[],
              $15::text::text[], $16::text::text[])
       as r(kind, biz_id, shard, enqueued_at, state, aside, version, attempt, failures, updated_at,
            error, fingerprint, due_at, priority, partition, cause)
returning ctid::text
