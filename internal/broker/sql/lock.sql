-- Takes the lock that proves the connection, for the session. Returns the server process of the session.
-- $1 nonce. Locks no row.
select pg_catalog.pg_backend_pid()
  from (select pg_catalog.pg_advisory_lock($1::bigint)) l
