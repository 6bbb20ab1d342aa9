-- Returns whether the database and its server are those of $1, which taskledger.session_incarnation() returned.
-- Locks nothing. Index: primary key of incarnation.
select coalesce(taskledger.session_incarnation() = $1::text, false)
