-- Takes or renews the lease of the NATS server of this database, unless another holder is alive and connected to it.
-- $1 holder, $2 milliseconds until it expires, $3 detail (JSON text).
-- Returns a row if the holder has the lease now. Writes nothing while another holder has it.
-- Locks the row. Index: primary key.
insert into taskledger.lease as held (name, holder, alive_until, detail)
select 'broker', $1::text, clock_timestamp() + $2::bigint * interval '1 millisecond', $3::text::json
 where not exists (
   select from taskledger.broker b where b.holder <> $1::text and b.is_alive and b.is_here)
    on conflict (name) do update
   set holder = excluded.holder, login = excluded.login, alive_until = excluded.alive_until, detail = excluded.detail,
       since = case when held.holder = excluded.holder then held.since else excluded.since end
 where held.holder = $1::text or held.alive_until <= clock_timestamp()
    -- The holder that this statement has read: another one may have taken the row meanwhile.
    or exists (select from taskledger.broker b where b.holder = held.holder and not b.is_here)
returning true
