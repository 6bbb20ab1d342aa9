-- Gives the database an incarnation if it has none: the first time, and after a crash.
-- Locks nothing; waits for a concurrent insert.
insert into taskledger.incarnation default values
    on conflict do nothing
