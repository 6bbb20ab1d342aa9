-- Takes or extends the lease of a service, unless another holder is alive.
-- $1 name of the service, $2 holder, $3 milliseconds until it expires.
-- Returns a row if the holder now holds the lease. Writes nothing while another holder is alive.
-- Locks the row. Index: primary key.
insert into taskledger.lease as held (name, holder, alive_until, term)
select $1::text, $2::text, clock_timestamp() + $3::bigint * interval '1 millisecond',
       $3::bigint * interval '1 millisecond'
 where not exists (
   select from taskledger.lease l
    where l.name = $1::text and l.holder <> $2::text and l.alive_until > clock_timestamp())
    on conflict (name) do update
   set holder = excluded.holder, login = excluded.login, alive_until = excluded.alive_until, term = excluded.term,
       since = case when held.holder = excluded.holder then held.since else excluded.since end
 where held.holder = $2::text or held.alive_until <= clock_timestamp()
returning true
