-- Takes or renews a lease of a NATS server of this database, unless another holder is alive and connected to it, or a
-- server with different peers began earlier and runs.
-- $1 member of a cluster, or '' for a single server, $2 holder, $3 milliseconds until the lease expires,
-- $4 detail (JSON text), $5 peers, or ''.
-- Returns a row if the holder now holds the lease. Writes nothing while another holder has it.
-- Locks the row. Index: primary key.
insert into taskledger.lease as held (name, holder, alive_until, term, detail)
select case when $1::text = '' then 'broker' else 'broker/' || $1::text end, $2::text,
       clock_timestamp() + $3::bigint * interval '1 millisecond', $3::bigint * interval '1 millisecond', $4::text::json
 where not exists (
   select
     from taskledger.broker b
     left join taskledger.broker own on own.member = $1::text and own.holder = $2::text and own.is_alive
    where b.is_alive and b.is_here and b.holder <> $2::text
      and (b.member = $1::text
           or coalesce(b.peers, '') <> $5::text and b.address is not null
              and (own.holder is null or (b.since, b.member) < (own.since, own.member))))
    on conflict (name) do update
   set holder = excluded.holder, login = excluded.login, alive_until = excluded.alive_until, term = excluded.term,
       detail = excluded.detail,
       since = case when held.holder = excluded.holder and held.alive_until > clock_timestamp() then held.since
                    else excluded.since end
 where held.holder = $2::text or held.alive_until <= clock_timestamp()
    -- Only the holder that this statement has read: another holder may have taken the row meanwhile.
    or exists (
      select from taskledger.broker b where b.member = $1::text and b.holder = held.holder and not b.is_here)
returning true
