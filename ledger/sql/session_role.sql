-- Restores the login, the role and the encoding of a session, also if the transaction has set others for itself: a
-- setting of the session replaces that of the transaction. In another encoding the server would change the text of the
-- event that follows.
-- $1 login, $2 role or none, $3 client_encoding. Returns one row. Locks nothing. Reads no table.
select set_config('session_authorization', $1::text, false), set_config('role', $2::text, false),
       set_config('client_encoding', $3::text, false)
