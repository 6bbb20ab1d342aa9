-- Ends the pause of a schedule. $1 name, $2 actor or null for session_user.
-- Locks that row. Index: primary key.
update taskledger.schedule s
   set paused_at = null, paused_by = null, pause_reason = null, actor = coalesce($2::text, session_user),
       revision = s.revision + 1, updated_at = clock_timestamp()
 where s.name = $1::text
