-- Returns the time. No parameters. Locks nothing.
select clock_timestamp()
