-- Selects the time and the id of the installation. No parameters. Locks nothing. Index: primary key of setting.
select clock_timestamp(), taskledger.installation()
