-- Selects the time and the version of the server, and the number of the last migration. No parameters. Locks nothing.
select (extract(epoch from clock_timestamp()) * 1e6)::bigint, current_setting('server_version'),
       taskledger.schema_version()
