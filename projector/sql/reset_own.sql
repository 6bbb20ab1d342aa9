-- Makes the tables of the projections of users invalid, so that they are built anew.
-- Locks the rows.
update taskledger.projection p
   set version = 0
 where p.name <> 'tasks'
