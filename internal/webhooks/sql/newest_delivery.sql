-- Selects the newest delivery of the first of these events that has one.
-- $1 kind of the deliveries, $2 positions of the events (array literal). Locks nothing. Index: primary key of event.
select f.biz_id
  from unnest($2::text::text[]) with ordinality p(id, i)
 cross join lateral (
   select d.biz_id
     from (select a.biz_id, a.position from taskledger.event a
            where a.kind = $1::text and a.biz_id = p.id and a.version = 1
            union all
           select b.biz_id, b.position from taskledger.event b
            where b.kind = $1::text and b.biz_id > p.id || '-again-' and b.biz_id < p.id || '-again.'
              and b.version = 1) d
    order by d.position + 0 desc -- no index has this order
    limit 1) f
 order by p.i
 limit 1
