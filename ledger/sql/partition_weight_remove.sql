-- Removes the weight of a partition.
-- $1 partition. Locks the row of the partition. Index: primary key.
select true where taskledger_internal.unset('weight', $1::text)
   and taskledger_internal.commit_durably() is distinct from ''
