-- Moves a consumer group of a watermill-sql outbox on.
-- $1 the group, $2 offset, $3 transaction. {offsets} is the group's table, quoted.
-- Locks the row, which this transaction has locked before.
update {offsets}
   set offset_acked = $2::bigint, last_processed_transaction_id = $3::text::xid8
 where consumer_group = $1::text
