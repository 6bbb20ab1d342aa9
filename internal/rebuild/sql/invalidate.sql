-- Makes the tables of a projection invalid, so that they are rebuilt.
-- $1 projection. Locks the row. Index: primary key.
update taskledger.projection p
   set version = 0
 where p.name = $1::text
