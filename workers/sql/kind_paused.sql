-- The paused kinds.
-- Locks nothing. Index: primary key of a small table, a range of it.
select substr(s.name, 8) from taskledger.setting s where s.name >= 'paused/' and s.name < 'paused0'
