-- Removes a limit of starts.
-- $1 name. Locks the row of the limit. Index: primary key.
select r.name from taskledger_internal.remove_start_limit($1::text) r(name)
 where taskledger_internal.commit_durably() is distinct from ''
