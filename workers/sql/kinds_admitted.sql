-- Raises an error unless the role may work on all of the kinds.
-- $1 kinds, a text array literal.
-- Locks nothing. Reads a table's policies in the catalog.
select taskledger_internal.check_kinds($1::text::text[])
