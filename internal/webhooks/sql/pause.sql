-- Pauses the deliveries of a receiver that has answered 410 Gone, unless they are paused. $1 name of the receiver.
-- Index: primary key of pause.
select taskledger_internal.pause_receiver($1::text)
