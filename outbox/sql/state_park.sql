-- Parks events.
-- $1 name; $2 kinds, $3 biz_ids, $4 versions, $5 positions: array literals of one length; $6 error, or ''.
-- Locks the rows. Index: primary key.
insert into taskledger.subscriber_parked (reader, kind, biz_id, version, position, error, failures)
select $1::text, e.kind, e.biz_id, e.version, e.position, $6::text, case when $6::text = '' then 0 else 1 end
  from unnest($2::text::text[], $3::text::text[], $4::text::integer[], $5::text::bigint[])
       as e(kind, biz_id, version, position)
    on conflict do nothing
