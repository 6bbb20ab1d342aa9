-- Prepares the import of events into an empty ledger, see the function.
-- $1 ids and $2 names of logins (array literals). Locks the tables event and login.
select taskledger_internal.begin_import($1::text::integer[], $2::text::text[])
