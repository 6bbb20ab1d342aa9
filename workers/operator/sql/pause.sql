-- Pauses a kind; the row of a kind that is paused already stays as it is.
-- $1 kind, $2 actor (null: session_user), $3 reason or ''.
-- Inserts a row if the kind was not paused. Locks its row. Index: primary key.
insert into taskledger.pause (kind, actor, reason)
values ($1::text, coalesce($2::text, session_user::text), $3::text)
    on conflict (kind) do nothing
