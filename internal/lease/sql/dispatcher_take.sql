-- Takes or renews the lease of the dispatcher, unless another holder is alive.
-- $1 holder, $2 milliseconds until it expires, $3 the holder's public key (hex), $4 the server process of the
-- connection that the holder keeps open (0: none), as in relay_take.sql, $5 a holder whose lease counts as expired,
-- empty for none, $6 the run of the server in which no copy of the database works: server_run(), $7 how many
-- microseconds the holder lets events gather. Returns a row if the holder now holds the lease: its epoch, the previous
-- holder's plus 1; for how many milliseconds the lease of $5 would still last; session_incarnation(), or ''; and
-- whether a run of the archive has begun.
-- Writes nothing while another holder is alive, or in another run.
-- Locks the row. Index: primary key.
with before as materialized (
  select l.holder,
         floor(extract(epoch from least(l.alive_until, clock_timestamp() + l.term) - clock_timestamp()) * 1000)::bigint
           as ms
    from taskledger.lease l
   where l.name = 'dispatcher'
), taken as (
  insert into taskledger.lease as held (name, holder, alive_until, term, backend, detail)
  select 'dispatcher', $1::text, clock_timestamp() + $2::bigint * interval '1 millisecond',
         $2::bigint * interval '1 millisecond', case when pg_backend_pid() = $4::bigint then pg_backend_pid() end,
         json_build_object('epoch', 1, 'key', $3::text, 'run', $6::text, 'latency_us', $7::bigint)
   where taskledger_internal.server_run() = $6::text and not exists (
     select from taskledger.lease l
      where l.name = 'dispatcher' and l.holder not in ($1::text, $5::text) and l.alive_until > clock_timestamp())
      on conflict (name) do update
     set holder = excluded.holder, login = excluded.login, alive_until = excluded.alive_until, term = excluded.term,
         backend = excluded.backend,
         since = case when held.holder = excluded.holder then held.since else clock_timestamp() end,
         detail = case when held.holder = excluded.holder then held.detail
                       else json_build_object('epoch', (held.detail->>'epoch')::bigint + 1, 'key', $3::text,
                                              'run', $6::text, 'latency_us', $7::bigint) end
   where held.holder in ($1::text, $5::text) or held.alive_until <= clock_timestamp()
  returning (held.detail->>'epoch')::bigint as epoch)
select t.epoch, coalesce((select greatest(0, b.ms) from before b where b.holder = $5::text), 0)::bigint,
       coalesce(taskledger_internal.session_incarnation(), ''), taskledger_internal.archived_until() > 0
  from taken t
