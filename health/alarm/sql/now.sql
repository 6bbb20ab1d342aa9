-- Selects the time and the id of the installation. No parameters. Locks nothing. Index: primary key.
select clock_timestamp(), (select s.value from taskledger.setting s where s.name = 'installation')
