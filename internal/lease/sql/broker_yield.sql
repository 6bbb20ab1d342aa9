-- Expires a lease of a NATS server of this database, so that another process takes it at once.
-- $1 member of a cluster, or '', $2 holder.
-- Locks the row. Index: primary key.
update taskledger.lease l
   set alive_until = clock_timestamp()
 where l.name = case when $1::text = '' then 'broker' else 'broker/' || $1::text end and l.holder = $2::text
