-- Reads the weights of partitions.
-- $1 the partition after which the list begins, '' for the first one; $2 most partitions.
-- Locks nothing. Index: primary key.
select w.partition, w.weight::text, w.actor, (date_part('epoch', w.updated_at) * 1e6)::bigint
  from taskledger_internal.partition_weights w
 where w.partition > $1::text
 order by w.partition
 limit $2::bigint
