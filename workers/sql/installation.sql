-- The installation that the tasks belong to.
-- Locks nothing. Index: primary key of setting.
select s.value from taskledger.setting s where s.name = 'installation'
