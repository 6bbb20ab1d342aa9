-- The paused kinds, by name: kind; since when, by whom and why (JSON text).
-- Locks nothing. Index: primary key of a small table, a range of it.
select substr(s.name, 8), s.value from taskledger.setting s where s.name >= 'paused/' and s.name < 'paused0' order by s.name
