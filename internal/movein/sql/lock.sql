-- Reads the place of a consumer group of a watermill-sql outbox.
-- $1 group. {offsets} is the table of groups, quoted.
-- Locks the row, as watermill-sql's subscribers do, so that the group has one reader at a time.
-- Index: primary key.
select o.offset_acked, o.last_processed_transaction_id::text
  from {offsets} o
 where o.consumer_group = $1::text
   for update
