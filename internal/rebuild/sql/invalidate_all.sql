-- Makes the tables of users' projections invalid, so that they are rebuilt.
-- Locks the rows.
update taskledger.projection p
   set version = 0
 where p.name <> 'tasks'
