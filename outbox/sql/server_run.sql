-- Selects the id of this installation, what differs between this database and a physical copy of it, and the time in
-- microseconds since 1970. Locks nothing. Index: primary key of setting.
select taskledger.installation(), taskledger.server_run(), (extract(epoch from clock_timestamp()) * 1e6)::bigint
