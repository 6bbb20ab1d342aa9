-- The names of logins.
-- $1 ids (array literal). Locks nothing.
select l.id, l.name from taskledger.logins l where l.id = any ($1::text::integer[]) order by l.id
