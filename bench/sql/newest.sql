-- Returns the newest position, or 0. No parameters. Takes no locks. Index: unique (position).
select coalesce(max(position), 0) from taskledger.event
