-- Allows the transaction to change events, and blocks all other writers of events until it ends.
-- Locks the table event in mode share row exclusive.
alter table taskledger.event disable trigger event_append_only
