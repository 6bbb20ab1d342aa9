-- Records in the lease of the relay that the stream is off, unless a relay is alive.
-- $1 holder: the process that records it.
-- Writes nothing if that is recorded already. Locks the row. Index: primary key.
insert into taskledger.lease as held (name, holder, since, alive_until, term, detail)
select 'relay', $1::text, clock_timestamp(), clock_timestamp(), interval '0',
       json_build_object('note', 'the stream is off', 'cause', 'off', 'since', clock_timestamp())
    on conflict (name) do update
   set holder = excluded.holder, login = excluded.login, since = excluded.since, alive_until = excluded.alive_until,
       term = excluded.term, backend = null, detail = excluded.detail
 where held.alive_until <= clock_timestamp() and held.detail->>'cause' is distinct from 'off'
