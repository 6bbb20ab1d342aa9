-- Raises an error unless the role may work on all these kinds.
-- $1 kinds: a text array literal.
-- Locks nothing. Index: the policies of a table in the catalogue.
select taskledger_internal.check_kinds($1::text::text[])
