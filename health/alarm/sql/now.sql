-- Selects the time and the id of the installation. No parameters. Locks nothing. Index: primary key.
select (extract(epoch from clock_timestamp()) * 1e6)::bigint,
       (select s.value from taskledger.setting s where s.name = 'installation')
