-- Ends a worker's lease: it holds no task any more.
-- $1 name of the lease. Locks that row. Index: primary key.
delete from taskledger.lease l where l.name = $1::text
