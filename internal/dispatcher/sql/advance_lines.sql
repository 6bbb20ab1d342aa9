-- Makes the next tasks of lines available.
-- $1 order keys: a text array literal. It must be the first statement of a READ COMMITTED transaction that writes.
-- Locks and indexes: see taskledger_internal.advance_lines.
select taskledger_internal.advance_lines($1::text::text[])
