-- The position at which a scan of list_newest.sql ends; no row if it reaches the beginning of the ledger.
-- $1 position before which it begins, $2 number of events.
-- Locks nothing. Index: (position).
select e.position from taskledger.event e
 where e.position < $1::bigint
 order by e.position desc
offset $2::integer - 1
 limit 1
