-- Whether notifications reach this connection, and no transaction fails because it has notified. A pooler shows its
-- clients other numbers of server processes, and a transaction that has notified cannot be prepared.
-- $1 the server process of the connection, as its client reports it. Locks nothing.
select pg_backend_pid() = $1::bigint and current_setting('max_prepared_transactions')::integer = 0
