-- Selects the tasks that were snoozed repeatedly for less than a second and nothing else, most often first.
-- $1 maximum number of snoozes to read. Returns kind, biz_id, how often in a row, and the time of the last snooze.
-- Locks nothing. Index: event_short_snooze.
select s.kind, s.biz_id, s.times, (extract(epoch from s.snoozed_at) * 1e6)::bigint
  from taskledger_internal.snoozed_in_a_row($1::integer) s
