-- Returns counters of the server: bytes of WAL, transactions that wrote, dead tuples of this database
-- (reported up to a second late), size of this database; and the process id of the server.
-- No parameters. Takes no locks.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::double precision,
       pg_snapshot_xmax(pg_current_snapshot())::text::double precision,
       (select coalesce(sum(n_tup_upd + n_tup_del), 0) from pg_stat_user_tables)::double precision,
       pg_database_size(current_database())::double precision,
       split_part(pg_read_file('postmaster.pid'), E'\n', 1)::integer
