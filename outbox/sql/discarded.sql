-- Selects which events an operator has discarded.
-- $1 positions (array literal). Locks nothing. Index: primary key.
select p.position
  from taskledger.parked p
 where p.position = any ($1::text::bigint[]) and p.discarded
