-- Sets or replaces a limit of starts.
-- $1 name; $2 kinds and $3 their weights: text array literals of one length; $4 per, or ''; $5 maximum number of
-- running tasks, or -1 for none; $6 starts in $7 seconds, at most $8 at once, or 0, 0 and 0; $9 actor or null for
-- session_user.
-- Locks the row of the limit. Indexes: primary keys; reads the running tasks of the kinds.
select taskledger_internal.set_start_limit(
         $1::text, $2::text::text[], $3::text::integer[], nullif($4::text, ''), nullif($5::integer, -1),
         nullif($6::integer, 0), nullif($7::integer, 0), nullif($8::integer, 0), coalesce($9::text, session_user))
 where taskledger_internal.commit_durably() is distinct from ''
