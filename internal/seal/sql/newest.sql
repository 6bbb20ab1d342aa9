-- The end of the seal: number of the last batch, number of leaves before it and in it, and highest position; 0
-- without a batch. Also the installation of the ledger.
-- Locks nothing. Index: primary key, backwards.
select coalesce(s.batch, 0), coalesce(s.first_leaf, 0), coalesce(cardinality(s.positions), 0), coalesce(s.top, 0),
       taskledger_internal.installation()
  from (values (1)) one
  left join lateral (
   select n.batch, n.first_leaf, n.positions, n.top from taskledger.seal n order by n.batch desc limit 1) s on true
