-- Gives this ledger a new id. Returns it. Locks the row. Index: primary key.
update taskledger.setting
   set value = gen_random_uuid()::text
 where name = 'installation'
returning value
