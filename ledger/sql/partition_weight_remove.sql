-- Removes the weight of a partition.
-- $1 partition. Locks the row of the partition. Index: primary key.
select r.partition from taskledger_internal.remove_partition_weight($1::text) r(partition)
 where taskledger_internal.commit_durably() is distinct from ''
