-- Where a walk of list_newest.sql ends; nothing if it comes to the ledger's beginning.
-- $1 position before which it begins, $2 how many events it walks over.
-- Locks nothing. Index: (position).
select e.position from taskledger.event e
 where e.position < $1::bigint
 order by e.position desc
offset $2::integer - 1
 limit 1
