-- Selects the time and the id of the installation. No parameters. Locks nothing. Index: primary key of setting.
select (extract(epoch from clock_timestamp()) * 1e6)::bigint, taskledger_internal.installation()
