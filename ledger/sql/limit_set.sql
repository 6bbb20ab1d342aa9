-- Sets or replaces the limit of a kind.
-- $1 kind, $2 maximum number of waiting tasks, $3 policy, $4 delay for callers to try again, in milliseconds,
-- $5 actor or null for session_user.
-- Locks the row of the kind. Index: primary key.
insert into taskledger.kind_limit as l (kind, max_waiting, policy, retry_after_ms, actor)
select $1::text, $2::bigint, $3::text, $4::bigint, coalesce($5::text, session_user)
 where taskledger_internal.commit_durably() is distinct from ''
    on conflict (kind) do update
   set max_waiting = excluded.max_waiting, policy = excluded.policy, retry_after_ms = excluded.retry_after_ms,
       actor = excluded.actor, updated_at = clock_timestamp()
