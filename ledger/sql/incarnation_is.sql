-- Returns whether taskledger_internal.session_incarnation(), of the database and its server, is still $1.
-- Locks nothing. Index: primary key of incarnation.
select coalesce(taskledger_internal.session_incarnation() = $1::text, false)
