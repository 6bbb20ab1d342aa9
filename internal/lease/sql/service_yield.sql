-- Expires the lease of a service, so that another process takes it at once.
-- $1 name of the service, $2 holder.
-- Locks the row. Index: primary key.
update taskledger.lease l
   set alive_until = clock_timestamp()
 where l.name = $1::text and l.holder = $2::text
