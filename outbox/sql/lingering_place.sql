-- Selects the place up to which the projector lists lingering tasks, as JSON; no row or null without a list.
-- Locks nothing. Index: primary key of cursor, backwards.
select l.place::text from taskledger.lingering_place l
