-- Selects the time. Locks nothing.
select (extract(epoch from clock_timestamp()) * 1e6)::bigint
