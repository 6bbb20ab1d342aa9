-- For each of these events, selects the newest delivery of the previous event of its task, with the number of the
-- event in the list. It considers events of the wanted types with a delivery. An event is not delivered if it was not
-- wanted when the subscriber passed it, or if the subscriber was moved past it. The search ends after 100 events, to
-- bound the cost. $1 kind of the deliveries; $2 kinds, $3 biz_ids and $4 versions of the events, $5 wanted types,
-- empty: all (array literals). Locks nothing. Index: primary key of event, from each event back to the previous one,
-- and for its deliveries.
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
