-- Where a consumer group of a watermill-sql outbox stands.
-- $1 the group. {offsets} is the group's table, quoted.
-- Locks the row, as watermill-sql's subscribers do, so that one reads at a time.
select o.offset_acked, o.last_processed_transaction_id::text
  from {offsets} o
 where o.consumer_group = $1::text
   for update
