-- Selects the args of the tasks behind some events: the data of the event that enqueued the run, with the meta that
-- defines its encoding.
-- $1 positions of the events (array literal). Returns a row for each event, in any order.
-- Locks nothing. Indexes: (position), then event_run and the primary key.
select e.position, f.data::text, f.meta::text
  from unnest($1::text::bigint[]) p(position)
  join taskledger.event e on e.position = p.position
  join taskledger.event f on f.kind = e.kind and f.biz_id = e.biz_id and f.version = coalesce((
         select r.version
           from taskledger.event r
          where r.kind = e.kind and r.biz_id = e.biz_id and r.run is not null and r.version < e.version
          order by r.version desc
          limit 1), 1)
