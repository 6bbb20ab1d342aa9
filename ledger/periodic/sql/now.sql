-- What time it is. Locks nothing.
select clock_timestamp()
