-- Sets the tables of a reader.
-- $1 reader, $2 tables: a text array literal. Locks the row. Index: primary key.
update taskledger.subscriber_state p
   set tables = $2::text::text[]
 where p.reader = $1::text
