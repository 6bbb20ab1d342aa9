-- Selects the incarnation of the database and its server, '' if it has none.
-- Locks nothing.
select coalesce(taskledger.session_incarnation(), '')
