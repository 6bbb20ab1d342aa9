-- The available and running tasks of some kinds, by their last event.
-- $1 kinds (text array literal). Returns kind and biz_id. Reads all events of a test's database.
select h.kind, h.biz_id
  from (
   select distinct on (e.kind, e.biz_id) e.kind, e.biz_id, e.type
     from taskledger.event e
    where e.kind = any ($1::text::text[])
    order by e.kind, e.biz_id, e.version desc) h
 where taskledger.state_after(h.type) in ('available', 'running')
