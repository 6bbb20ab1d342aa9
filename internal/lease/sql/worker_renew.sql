-- Extends a lease, or creates it. It then belongs to the session's login.
-- $1 name, $2 holder, $3 duration in milliseconds, $4 detail (JSON text).
-- Locks the row. Index: primary key.
insert into taskledger.lease as l (name, holder, alive_until, term, detail)
values ($1::text, $2::text, clock_timestamp() + $3::bigint * interval '1 millisecond',
        $3::bigint * interval '1 millisecond', $4::text::json)
    on conflict (name) do update
   set alive_until = excluded.alive_until, term = excluded.term, login = excluded.login,
       -- an equal detail, which may be long, is not written again
       detail = case when l.detail::text = excluded.detail::text then l.detail else excluded.detail end
