-- Lets others take the lease of the relay at once; the row stays and tells why.
-- $1 holder, $2 why, $3 whether it refuses to go on. The same words as before keep their time, so
-- that it is the one since when, also where several relays refuse in turn.
-- Locks the row.
update taskledger.lease l
   set alive_until = clock_timestamp(),
       detail = json_build_object('note', $2::text, 'refused', $3::text::boolean, 'since',
         case when l.detail->>'note' = $2::text then (l.detail->>'since')::timestamptz else clock_timestamp() end)
 where l.name = 'relay' and l.holder = $1::text
