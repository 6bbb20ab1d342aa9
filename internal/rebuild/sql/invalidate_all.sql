-- Makes the tables of subscribers invalid, so that they are rebuilt.
-- Locks the rows.
update taskledger.subscriber_state p
   set version = 0
 where p.tables <> '{}' and p.reader <> 'projector'
