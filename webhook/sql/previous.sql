-- Selects the newest delivery of the event before each of these events, among those of the wanted types that have a
-- delivery, with the number of the event in the list. An event has none if it was not wanted when it was passed, or the
-- subscriber was moved past it. After 100 of them no earlier event is looked for, so that the cost is bounded.
-- $1 kind of the deliveries; $2 kinds, $3 biz_ids and $4 versions of the events, $5 wanted types, empty: all (array
-- literals). Locks nothing. Index: primary key of event, from each event back to the one before, and for its
-- deliveries.
select q.i, d.biz_id
  from unnest($2::text::text[], $3::text::text[], $4::text::integer[]) with ordinality q(kind, biz_id, version, i)
 cross join lateral (
   select f.biz_id
     from (select e.position::text as id, e.version
             from taskledger.event e
            where e.kind = q.kind and e.biz_id = q.biz_id and e.version < q.version
              and ($5::text = '{}' or e.type = any ($5::text::taskledger.event_type[]))
            order by e.version desc
            limit 100) p
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
    order by p.version desc
    limit 1) d
