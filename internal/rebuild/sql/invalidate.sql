-- Makes the tables of a reader invalid, so that they are rebuilt.
-- $1 reader. Locks the row. Index: primary key.
update taskledger.subscriber_state p
   set version = 0
 where p.reader = $1::text
