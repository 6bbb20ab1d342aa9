-- Selects the readers whose cursors are of another database (text of a JSON array), whether an event has a transaction
-- id that this database has not reached, and the last position.
-- Locks nothing. Indexes: (xid, position) and (position), both backwards. Reads all cursor rows.
select coalesce((select json_agg(r.reader order by r.reader)
                   from (select distinct on (c.reader) c.reader, c.is_local
                           from taskledger.cursors c
                          order by c.reader, c.n desc) r
                  where not r.is_local), '[]')::text,
       coalesce((select e.xid from taskledger.event e order by e.xid desc limit 1)
                >= pg_snapshot_xmax(pg_current_snapshot()), false),
       coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0)
