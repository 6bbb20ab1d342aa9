-- Records the relay of a physical copy of the database that claims to work on the same NATS.
-- $1 its name, $2 milliseconds until the record expires.
-- Locks the row. Index: primary key.
insert into taskledger.lease as l (name, holder, alive_until, term)
values ('copy', $1::text, clock_timestamp() + $2::bigint * interval '1 millisecond',
        $2::bigint * interval '1 millisecond')
    on conflict (name) do update
   set holder = excluded.holder, login = excluded.login, alive_until = excluded.alive_until, term = excluded.term,
       since = case when l.holder = excluded.holder and l.alive_until > clock_timestamp() then l.since
                    else excluded.since end
