-- Resets a session after a transaction of callers' code: see reset_session. Restores the login and the role,
-- too, which RESET ALL leaves, and which a statement or a deferred trigger may have set since session_role.sql.
-- $1 settings to restore, a text array literal of names and values in turn; $2 login; $3 role or none.
-- Returns one row. Locks nothing.
select pg_catalog.set_config('session_authorization', $2::pg_catalog.text, false),
       pg_catalog.set_config('role', $3::pg_catalog.text, false),
       taskledger_internal.reset_session($1::pg_catalog.text)
