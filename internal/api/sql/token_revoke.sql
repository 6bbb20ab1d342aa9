-- Revokes a token that is not revoked.
-- $1 id, $2 actor (null: session_user). Locks its row. Index: primary key.
update taskledger.token t
   set revoked_at = clock_timestamp(), revoked_by = coalesce($2::text, session_user::text)
 where t.id = $1::text and t.revoked_at is null and taskledger_internal.commit_durably() is distinct from ''
