-- Erases tasks: see the function.
-- $1 id of the act, or null for a new one, $2 kinds, $3 biz_ids (array literals of one length), $4 whether unknown
-- tasks are erased, too (1 or 0), $5 fingerprint of an error without text, $6 actor or null, $7 reason.
-- Returns whether the projector must first read more, how many tasks and events are erased, and an unknown task or ''.
-- Locks the last events of the tasks, runs of the archive and the seal. Indexes: primary keys.
select r.is_waiting, r.tasks, r.events, coalesce(r.unknown, '')
  from taskledger_internal.erase_tasks($1::text::uuid, $2::text::text[], $3::text::text[], $4::integer = 1, $5::text,
                                       $6::text, $7::text) r
