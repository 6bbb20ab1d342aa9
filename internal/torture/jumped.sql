-- Returns turns in a line that an earlier task should have had: it was visible to the search for the next task, stood
-- before it, and left its place later. Positions decide the order, so the database's clock does not matter.
select b.kind || '/' || b.biz_id || ' got its turn in ' || b.order_key || ' before ' || a.kind || '/' || a.biz_id
  from taskledger.event b
  join taskledger.event place on place.kind = b.kind and place.biz_id = b.biz_id and place.version = b.version - 1
  join taskledger.event a on a.order_key = b.order_key and a.type = 'lined_up' and a.position < place.position
 where b.type = 'released' and b.order_key is not null and starts_with(b.data::text, '{"reason":"turn"')
   and (b.data ->> 'place')::bigint = place.position
   and pg_visible_in_snapshot(a.xid, (b.data ->> 'seen')::pg_snapshot)
   and not exists (
     select from taskledger.event n
      where n.kind = a.kind and n.biz_id = a.biz_id and n.version = a.version + 1 and n.position < b.position)
 limit 20
