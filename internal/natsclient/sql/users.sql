-- Selects the users whose passwords the login may read, with their passwords: row-level security hides all others.
-- Locks nothing. Reads the whole small table.
select u.name, u.password from taskledger.broker_user u
