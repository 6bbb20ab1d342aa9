-- Restores the login and the role of a session, also if the transaction has set others for itself: a setting of the
-- session replaces that of the transaction.
-- $1 login, $2 role or none. Returns one row. Locks nothing. Reads no table.
select set_config('session_authorization', $1::text, false), set_config('role', $2::text, false)
