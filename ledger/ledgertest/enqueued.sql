-- Reads the first event of every task of a kind.
-- $1 kind. Locks nothing. Index: primary key.
select e.biz_id, e.data::text, e.meta::text
  from taskledger.event e
 where e.kind = $1::text and e.version = 1
