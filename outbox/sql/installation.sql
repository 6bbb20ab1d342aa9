-- Selects the id of this installation. Locks nothing. Index: primary key.
select s.value from taskledger.setting s where s.name = 'installation'
