-- Finds the events that cannot be appended because other transactions lock their keys.
-- Of each event: $1 kind, $2 biz_id, $3 expected version, $4 type, $5 actor ('' or null for session_user): array
-- literals of one length.
-- Returns their numbers in the arrays, from 1. Appends nothing.
-- Waits 1 ms for each locked key, and locks one key at a time. Index: primary key.
select n
  from taskledger_internal.locked_events($1::text::text[], $2::text::text[], $3::text::integer[], $4::text::text[],
                                         $5::text::text[]) n
