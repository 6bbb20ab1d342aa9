-- Exchanges a link for a session, once.
-- $1 the link's secret, $2 hash of the session's secret (bytea literal). Locks the link's row. Index: primary key.
select taskledger_internal.redeem_link($1::text, $2::text::bytea)
