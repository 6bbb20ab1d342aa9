-- The state of the archive: when its last run has ended, the moment before which tasks must have ended, how many tasks
-- it has removed and readers of the feed hold, one of these readers, the earliest end of these tasks, since when runs
-- have begun and not ended, when a batch was removed. Times are in microseconds since 1970; null: none.
-- Locks nothing. Index: see the function.
select (date_part('epoch', s.ended_at) * 1e6)::bigint, (date_part('epoch', s.cutoff) * 1e6)::bigint, s.tasks, s.held,
       s.held_by, (date_part('epoch', s.held_since) * 1e6)::bigint,
       (date_part('epoch', s.unfinished_since) * 1e6)::bigint, (date_part('epoch', s.removed_at) * 1e6)::bigint
  from taskledger_internal.archive_state() s
