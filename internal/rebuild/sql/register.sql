-- Registers a projection.
-- $1 name, $2 version, $3 shape, $4 1 if it parks events. Returns its version; no row if it is registered already.
-- Waits for a concurrent transaction that registers it. Index: primary key.
insert into taskledger.projection (name, version, shape, tables, parks)
values ($1::text, $2::bigint::integer, $3::text, '{}', $4::bigint = 1)
    on conflict do nothing
returning version
