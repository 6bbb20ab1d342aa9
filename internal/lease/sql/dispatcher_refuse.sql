-- Records in the lease of the dispatcher, unless one is alive, why none begins.
-- $1 note, $2 whether a copy of the database has answered just now.
-- Locks the row. Index: primary key.
update taskledger.lease l
   set detail = (l.detail::jsonb || jsonb_build_object('note', $1::text) || case when $2::text::boolean
         then jsonb_build_object('heard', clock_timestamp(), 'installation', taskledger_internal.installation())
         else '{}' end)::json
 where l.name = 'dispatcher' and l.alive_until <= clock_timestamp()
