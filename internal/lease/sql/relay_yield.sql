-- Expires the lease of the relay at once; the row stays and contains the reason. $1 holder, $2 reason, $3 whether the
-- relay refuses to continue. An equal reason keeps its time, even if several relays refuse in turn.
-- Locks the row. Index: primary key.
update taskledger.lease l
   set alive_until = clock_timestamp(),
       detail = json_build_object('note', $2::text, 'refused', $3::text::boolean, 'since',
         case when l.detail->>'note' = $2::text then (l.detail->>'since')::timestamptz else clock_timestamp() end)
 where l.name = 'relay' and l.holder = $1::text
