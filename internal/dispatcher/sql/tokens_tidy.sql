-- Removes old uses of tokens and makes others usable; returns the number of removed rows.
-- $1 how many of each sort at most. Locks the removed rows, and passes over locked ones. Reads the newest uses of each
-- token.
select taskledger_internal.tidy_tokens($1::integer)
