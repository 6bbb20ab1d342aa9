-- Pauses or resumes a schedule.
-- $1 name, $2 true to pause, $3 actor or null for session_user.
-- Locks that row. Index: primary key.
update taskledger.schedule s
   set paused = $2::text::boolean, actor = coalesce($3::text, session_user), revision = s.revision + 1,
       updated_at = clock_timestamp()
 where s.name = $1::text
