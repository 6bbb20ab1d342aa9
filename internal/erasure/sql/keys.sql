-- The next tasks of a kind in the order of biz_id.
-- $1 kind, $2 the least biz_id, $3 biz_id to continue after, $4 number of tasks. Locks nothing. Index: primary key.
select e.biz_id
  from taskledger.event e
 where e.kind = $1::text and e.biz_id >= $2::text and e.biz_id > $3::text and e.version = 1
 order by e.kind, e.biz_id
 limit $4::bigint
