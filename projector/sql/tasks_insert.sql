-- Writes tasks that are new to the table. A plain insert and not an upsert, which would cost half
-- as much again: the transaction is the only writer (see tasks_before.sql).
-- $1 kinds, $2 biz_ids, $3 shards, $4 states, $5 aside (0 or 1), $6 versions, $7 attempts,
-- $8 failures, $9 enqueued_at, $10 updated_at, $11 errors or null,
-- $12 fingerprints or null, $13 due_at or null, $14 causes or null: text array literals of one
-- length, sorted by key.
insert into taskledger.task
       (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at, error, fingerprint, due_at, cause)
select r.kind, r.biz_id, r.shard, r.state::taskledger.task_state, r.aside = 1, r.version, r.attempt, r.failures,
       r.enqueued_at, r.updated_at, r.error, r.fingerprint, r.due_at, r.cause
  from unnest($1::text::text[], $2::text::text[], $3::text::smallint[], $4::text::text[], $5::text::integer[],
              $6::text::integer[], $7::text::integer[], $8::text::integer[], $9::text::timestamptz[],
              $10::text::timestamptz[], $11::text::text[], $12::text::text[],
              $13::text::timestamptz[], $14::text::text[])
       as r(kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at, error, fingerprint, due_at, cause)
