-- Replaces the mark of a subscriber.
-- $1 name, $2 mark (JSON text). Returns whether the subscriber exists.
-- Locks as taskledger_internal.append_cursor. Index: primary key, backwards.
select taskledger_internal.mark_feed($1::text, $2::text::json)
