-- Registers a reader that has tables or parks events.
-- $1 reader, $2 version, $3 shape, $4 1 if it parks events. Returns its version; no row if it is registered already.
-- Waits for a concurrent transaction that registers it. Index: primary key.
insert into taskledger.subscriber_state (reader, version, shape, tables, parks)
values ($1::text, $2::bigint::integer, $3::text, '{}', $4::bigint = 1)
    on conflict do nothing
returning version
