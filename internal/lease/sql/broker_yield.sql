-- Expires the lease of the NATS server of this database, so that another process takes it at once.
-- $1 holder.
-- Locks the row. Index: primary key.
update taskledger.lease l
   set alive_until = clock_timestamp()
 where l.name = 'broker' and l.holder = $1::text
