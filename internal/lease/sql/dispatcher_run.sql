-- Selects the installation's id, the server's run, and the knowledge about copies of this database: whether a
-- dispatcher or the relay has made sure in this run that no copy works, or no dispatcher has ever begun; whether a
-- relay is about to make sure; whether the relay refuses; and whether a copy has answered within the last minute.
-- Locks nothing. Index: primary keys.
select taskledger_internal.installation(), h.run,
       case when d.name is null then (select f.raised_at from taskledger_internal.floors f) is null
            else coalesce(d.detail->>'run' = h.run, false) end
         or coalesce(m.server = h.run, false),
       coalesce(r.is_alive and not r.is_gone and r.note is null, false), coalesce(r.is_refusing, false),
       coalesce((d.detail->>'heard')::timestamptz > clock_timestamp() - interval '1 minute'
                and d.detail->>'installation' = taskledger_internal.installation(), false)
  from (select taskledger_internal.server_run() as run) h
  left join taskledger.lease d on d.name = 'dispatcher'
  left join taskledger_internal.relay_lease r on true
  left join lateral (select m.server from taskledger_internal.relay_mark m order by m.n desc limit 1) m on true
