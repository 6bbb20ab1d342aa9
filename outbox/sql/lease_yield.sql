-- Lets others take the lease of the relay at once; the row stays and tells why.
-- $1 holder, $2 detail (JSON text). Locks the row.
update taskledger.lease
   set alive_until = clock_timestamp(), detail = $2::text::json
 where name = 'relay' and holder = $1::text
