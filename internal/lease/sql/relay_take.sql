-- Takes or renews the lease of the relay, unless another holder is alive.
-- $1 holder, $2 milliseconds until it expires, $3 note: why the holder cannot work; empty if it can, null to keep the
-- row's note, even another holder's, except the note that the stream is off. A note keeps the time of the first note
-- since the relay could work, because several notes may alternate. After a refusal it gets a new time. $4 the server
-- process of the connection that the holder keeps open, as its client reports it, 0 for none; behind a pooler it is not
-- the process that executes this statement. $5 a holder whose lease counts as expired, empty for none. $6 the cause of
-- the note, empty for none.
-- Returns a row if the holder now holds the lease: since when, in microseconds since 1970, no other holder has had it.
-- Writes nothing while another holder is alive.
-- Locks the row. Index: primary key.
insert into taskledger.lease as held (name, holder, since, alive_until, term, backend, detail)
select 'relay', $1::text, clock_timestamp(), clock_timestamp() + $2::bigint * interval '1 millisecond',
       $2::bigint * interval '1 millisecond', case when pg_backend_pid() = $4::bigint then pg_backend_pid() end,
       case when $3::text <> '' then json_build_object('note', $3::text, 'cause', nullif($6::text, ''),
         'since', clock_timestamp()) end
 where not exists (
   select from taskledger.lease l
    where l.name = 'relay' and l.holder not in ($1::text, $5::text) and l.alive_until > clock_timestamp())
    on conflict (name) do update
   set holder = excluded.holder, login = excluded.login,
       since = case when held.holder = excluded.holder then held.since else excluded.since end,
       alive_until = excluded.alive_until, term = excluded.term,
       backend = excluded.backend,
       detail = case
         when $3::text is null and held.detail->>'cause' = 'off' then null
         when $3::text is null or held.detail->>'note' = $3::text then held.detail
         when $3::text <> '' and held.detail->>'since' is not null and held.detail->>'refused' is distinct from 'true'
         then json_build_object('note', $3::text, 'cause', nullif($6::text, ''), 'since', held.detail->'since')
         else excluded.detail end
 where held.holder in ($1::text, $5::text) or held.alive_until <= clock_timestamp()
returning (extract(epoch from held.since) * 1e6)::bigint
