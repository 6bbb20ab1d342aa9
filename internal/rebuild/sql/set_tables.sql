-- Sets the tables of a projection.
-- $1 name, $2 tables: a text array literal. Locks the row. Index: primary key.
update taskledger.projection p
   set tables = $2::text::text[]
 where p.name = $1::text
