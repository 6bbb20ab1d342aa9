-- Restores the login, the role and the encoding of a session, even if the transaction has set others for itself: a
-- setting of the session replaces the transaction's. In another encoding the server would change the text of the event
-- that follows.
-- $1 login, $2 role or none, $3 client_encoding. Returns one row. Locks nothing. Reads no table.
select pg_catalog.set_config('session_authorization', $1::pg_catalog.text, false),
       pg_catalog.set_config('role', $2::pg_catalog.text, false),
       pg_catalog.set_config('client_encoding', $3::pg_catalog.text, false)
