-- Selects the id of this installation, what differs between this database and a physical copy of it, the time in
-- microseconds since 1970, whether a rebase has made the database valid, whether it was promoted after the newest
-- cursor row, and the other copy of the database beside which its relay refused last: relay, since when in
-- microseconds, and when the stream was created; empty and 0 if none. Locks nothing. Indexes: primary keys of setting,
-- lease and cursor.
select taskledger.installation(), taskledger.server_run(), (extract(epoch from clock_timestamp()) * 1e6)::bigint,
       taskledger.rebased_at() is not null,
       coalesce((select m.timeline <> taskledger.timeline() from taskledger.relay_mark m order by m.n desc limit 1),
                false),
       coalesce(l.original_holder, ''), coalesce((extract(epoch from l.original_since) * 1e6)::bigint, 0),
       coalesce(l.original_stream, '')
  from (select) one
  left join taskledger.relay_lease l on true
