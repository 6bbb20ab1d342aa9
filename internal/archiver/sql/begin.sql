-- Begins a run of the archive.
-- $1 how long ago tasks must have ended, in microseconds, $2 the archive of its files, or null.
-- Returns the number of the run, and the moment before which they must have ended, in microseconds since 1970.
-- Locks a row of mutex.
select b.run::bigint, (date_part('epoch', b.cutoff) * 1e6)::bigint
  from taskledger_internal.begin_archive($1::bigint * interval '1 microsecond', $2::text) b
