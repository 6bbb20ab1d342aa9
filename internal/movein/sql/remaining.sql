-- Reports whether a watermill-sql outbox contains messages after a place, including messages that page.sql
-- does not return yet because an older transaction is open.
-- $1 last transaction, $2 last offset within it. {messages} is the table, quoted.
-- Locks nothing. Index: primary key.
select exists (
  select from {messages} m
   where (m.transaction_id, m."offset") > ($1::text::xid8, $2::bigint))
