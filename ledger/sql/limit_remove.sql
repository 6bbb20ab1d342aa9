-- Removes the limit of a kind.
-- $1 kind. Locks the row of the kind. Index: primary key.
select true where taskledger_internal.unset('limit', $1::text)
   and taskledger_internal.commit_durably() is distinct from ''
