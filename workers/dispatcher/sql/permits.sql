-- Selects the permits in use of limits.
-- $1 the names of the limits, which are kinds: a text array literal. Locks nothing. Index: primary keys; reads the rows
-- of these limits, and the head of each holder.
select p.kind, p.biz_id, p.version from taskledger.permits p where p.name = any ($1::text::text[])
