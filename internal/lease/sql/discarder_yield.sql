-- Expires the lease of the scheduler that discards, so that another scheduler takes it at once.
-- $1 holder.
-- Locks the row. Index: primary key.
update taskledger.lease l
   set alive_until = clock_timestamp()
 where l.name = 'discarder' and l.holder = $1::text
