-- Selects whether a relay still has the lease of this database, which is a primary.
-- $1 holder. Locks nothing. Index: primary key of lease.
select exists (
         select from taskledger.relay_lease l where l.holder = $1::text and l.is_alive)
       and not pg_is_in_recovery()
