-- Counts the events of a range of keys, up to a limit.
-- $1 kind, $2 the first biz_id, $3 the end of the biz_ids, $4 limit. Locks nothing. Index: primary key.
select count(*)
  from (
    select
      from taskledger.event e
     where e.kind = $1::text and e.biz_id >= $2::text and e.biz_id < $3::text
     limit $4::bigint) e
