-- Removes a limit of starts.
-- $1 name. Locks the row of the limit. Index: primary key.
select true where taskledger_internal.unset('start limit', $1::text)
   and taskledger_internal.commit_durably() is distinct from ''
