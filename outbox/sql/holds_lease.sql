-- Selects whether a relay still has the lease of this database, which is a primary, in the same run of its server.
-- $1 holder, $2 run. Locks nothing. Index: primary key of lease.
select exists (
         select from taskledger.relay_lease l where l.holder = $1::text and l.is_alive)
       and taskledger.server_run() = $2::text and not pg_is_in_recovery()
