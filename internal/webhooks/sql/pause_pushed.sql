-- Pauses a kind whose server has answered 410 Gone, unless it is paused. $1 kind. Returns whether it was not paused.
-- Index: primary key of pause.
select taskledger_internal.pause_pushed($1::text)
