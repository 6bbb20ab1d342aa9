-- Whose tasks these are.
-- Locks nothing. Index: primary key of setting.
select s.value from taskledger.setting s where s.name = 'installation'
