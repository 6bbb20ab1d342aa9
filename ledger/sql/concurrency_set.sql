-- Sets or replaces the concurrency limit of a kind.
-- $1 kind, $2 maximum number of running tasks, $3 actor or null for session_user.
-- Locks the row of the kind. Index: primary key.
insert into taskledger.concurrency_limit as l (kind, max_running, actor)
select $1::text, $2::integer, coalesce($3::text, session_user)
 where taskledger_internal.commit_durably() is distinct from ''
    on conflict (kind) do update
   set max_running = excluded.max_running, actor = excluded.actor, updated_at = clock_timestamp()
