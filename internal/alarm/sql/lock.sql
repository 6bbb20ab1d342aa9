-- Locks a receiver against deliveries of other processes until this transaction ends. The transaction is idle during a
-- delivery, which takes less than a minute: the server ends a transaction that is idle for longer. $1 receiver. Selects
-- whether the lock was free; it does not wait. Locks a row. Index: primary key.
with locked as materialized (
  select from taskledger.mutex m where m.name = 'alarm/' || $1::text for update skip locked
)
select set_config('idle_in_transaction_session_timeout', '60000', true), exists (select from locked)
