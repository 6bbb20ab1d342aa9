-- Selects the readers whose cursors belong to another database (text of a JSON array), whether events above the floor
-- belong to another database, the last position, and whether the sequence is behind it.
-- Locks nothing. Indexes: (xid, position) and (position), both backwards. Reads all cursor rows.
select coalesce((select json_agg(r.reader order by r.reader)
                   from (select distinct on (c.reader) c.reader, c.is_local
                           from taskledger.cursors c
                          order by c.reader, c.n desc) r
                  where not r.is_local), '[]')::text,
       taskledger_internal.foreign_position() is not null,
       coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0),
       taskledger_internal.position_behind() <> 0
