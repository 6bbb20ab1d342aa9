-- Reads the next messages of a watermill-sql outbox in its order, up to the oldest transaction under way.
-- $1 last transaction, $2 last offset within it, $3 maximum number of messages. {messages} is the table,
-- quoted. Locks nothing. Index: primary key.
select m."offset", m.transaction_id::text, m.uuid, m.payload, m.metadata::text
  from {messages} m
 where (m.transaction_id, m."offset") > ($1::text::xid8, $2::bigint)
   and m.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
 order by m.transaction_id, m."offset"
 limit $3::bigint
