-- Expires the lease of the dispatcher at once. The row stays, because it contains the epoch.
-- $1 holder. Locks the row. Index: primary key.
update taskledger.lease l
   set alive_until = clock_timestamp()
 where l.name = 'dispatcher' and l.holder = $1::text
