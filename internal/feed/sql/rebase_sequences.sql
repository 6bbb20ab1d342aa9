-- Advances sequences that are behind their tables: logical replication copies no sequences. Positions that a cursor of
-- this database has passed are not drawn again. The caller holds a lock that blocks all other writers of events.
-- Indexes: (position) and primary key of login, backwards. Reads all cursor rows.
select (select setval('taskledger.event_position_seq', m.last)
          from (select greatest((select max(e.position) from taskledger.event e),
                                (select max(greatest(c.seen_top, c.top)) from taskledger.cursors c
                                  where c.written_here)) as last) m
         where m.last > coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0)),
       (select setval('taskledger.login_id_seq', m.last)
          from (select max(l.id) as last from taskledger.logins l) m
         where m.last > coalesce(pg_sequence_last_value('taskledger.login_id_seq'::regclass), 0))
