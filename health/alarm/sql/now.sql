-- What time it is, and which installation this is. Locks nothing. Index: primary key.
select clock_timestamp(), (select s.value from taskledger.setting s where s.name = 'installation')
