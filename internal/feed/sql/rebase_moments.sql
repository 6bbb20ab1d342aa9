-- Removes all moments: their transaction IDs belong to another database. The past before the rebase is then read in
-- the order of positions. Locks all rows.
delete from taskledger.moment
