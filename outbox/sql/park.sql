-- Records an event that cannot be published. The first reason stays.
-- $1 position, $2 kind, $3 biz_id, $4 version, $5 reason. Locks a new row. Index: primary key.
insert into taskledger.parked (position, kind, biz_id, version, reason)
values ($1::bigint, $2::text, $3::text, $4::integer, $5::text)
    on conflict (position) do nothing
