-- Records the relay of another copy of the database, to which a stream belongs.
-- $1 its name, $2 since when that copy has had a relay, in microseconds since 1970, $3 when the stream was created.
-- Locks the row. Index: primary key.
insert into taskledger.lease as l (name, holder, since, alive_until, detail)
values ('original', $1::text, timestamptz 'epoch' + $2::bigint * interval '1 microsecond', clock_timestamp(),
        json_build_object('stream_created', $3::text))
    on conflict (name) do update
   set holder = excluded.holder, login = excluded.login, since = excluded.since, alive_until = excluded.alive_until,
       detail = excluded.detail
