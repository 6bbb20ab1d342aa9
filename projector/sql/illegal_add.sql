-- Records an event that does not fold, once.
-- $1 kind, $2 biz_id, $3 version of the event (0: unknown), $4 reason. Locks the row. Index: primary key.
insert into taskledger.illegal_event (kind, biz_id, version, reason)
values ($1::text, $2::text, $3::bigint::integer, $4::text)
    on conflict do nothing
