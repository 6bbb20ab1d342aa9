-- Returns how many tasks of a kind were released. $1 kind. Takes no locks. Needs event's primary key.
select count(*) from taskledger.event e where e.kind = $1::text and e.type = 'released'
