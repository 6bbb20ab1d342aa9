-- Pauses a kind. If it is paused already, a new reason and its actor replace the old ones.
-- $1 kind, $2 actor (null: session_user), $3 reason or ''.
-- Returns whether the kind was not paused; no row if nothing has changed. Locks the kind's row. Index: primary key.
insert into taskledger.pause as p (kind, actor, reason)
values ($1::text, coalesce($2::text, session_user::text), $3::text)
    on conflict (kind) do update set actor = excluded.actor, reason = excluded.reason
 where excluded.reason <> '' and excluded.reason <> p.reason
returning p.xmax = 0
