-- Moves a consumer group of a watermill-sql outbox on.
-- $1 group, $2 offset, $3 transaction of the last message read. {offsets} is the table of groups, quoted.
-- Locks the row, which lock.sql has locked in this transaction. Index: primary key.
update {offsets}
   set offset_acked = $2::bigint, last_processed_transaction_id = $3::text::xid8
 where consumer_group = $1::text
