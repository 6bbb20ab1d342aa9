-- Pauses a schedule, or replaces the reason of its pause.
-- $1 name, $2 actor or null for session_user, $3 reason, '' for none.
-- Locks that row. Index: primary key.
update taskledger.schedule s
   set paused_at = coalesce(s.paused_at, clock_timestamp()), paused_by = coalesce($2::text, session_user),
       pause_reason = $3::text, actor = coalesce($2::text, session_user), revision = s.revision + 1,
       updated_at = clock_timestamp()
 where s.name = $1::text
