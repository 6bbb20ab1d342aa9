-- Advances sequences that are behind their tables: logical replication copies no sequences. The caller has a
-- lock that blocks all other writers of events. Indexes: (position) and primary key of login, backwards.
select (select setval('taskledger.event_position_seq', m.last)
          from (select max(e.position) as last from taskledger.event e) m
         where m.last > coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0)),
       (select setval('taskledger.login_id_seq', m.last)
          from (select max(l.id) as last from taskledger.logins l) m
         where m.last > coalesce(pg_sequence_last_value('taskledger.login_id_seq'::regclass), 0))
