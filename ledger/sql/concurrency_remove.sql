-- Removes the concurrency limit of a kind.
-- $1 kind. Locks the row of the kind. Index: primary key.
select r.kind from taskledger_internal.remove_concurrency_limit($1::text) r(kind)
 where taskledger_internal.commit_durably() is distinct from ''
