-- Returns whether no other client is connected to this database, except those in a transaction. No parameters. Takes no
-- locks.
select not exists (
         select from pg_stat_activity a
          where a.datname = current_database() and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
            and a.state <> 'idle in transaction')
