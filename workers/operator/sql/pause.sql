-- Pauses a kind; one that is paused stays as it was.
-- $1 kind, $2 actor (null: session_user), $3 reason or ''.
-- Answers a row if it was not paused. Locks its row. Index: primary key.
insert into taskledger.setting (name, value)
values ('paused/' || $1::text, json_build_object('since', clock_timestamp(), 'actor', coalesce($2::text, session_user::text), 'reason', $3::text)::text)
    on conflict (name) do nothing
returning value
