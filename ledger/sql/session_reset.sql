-- Resets a session after a transaction of callers' code: see taskledger.reset_session.
-- $1 settings to restore, a text array literal of names and values in turn.
-- Returns one row. Locks nothing.
select taskledger.reset_session($1::pg_catalog.text)
