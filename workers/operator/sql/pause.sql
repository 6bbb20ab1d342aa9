-- Pauses a kind; the row of a kind that is paused already stays as it is.
-- $1 kind, $2 actor (null: session_user), $3 reason or ''.
-- Returns a row if the kind was not paused. Locks its row. Index: primary key.
insert into taskledger.setting (name, value)
values ('paused/' || $1::text,
        json_build_object('since', clock_timestamp(), 'actor', coalesce($2::text, session_user::text), 'reason', $3::text)::text)
    on conflict (name) do nothing
returning value
