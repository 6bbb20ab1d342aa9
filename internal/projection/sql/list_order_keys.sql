-- Selects the order keys of tasks, as of one of their events. A task in no line is left out.
-- $1 kinds, $2 biz_ids, $3 versions: array literals of one length. Returns the index in the arrays, from 0, and the
-- key.
-- Locks nothing. Index: primary key of event.
select (k.i - 1)::integer, e.order_key
  from unnest($1::text::text[], $2::text::text[], $3::text::integer[]) with ordinality as k(kind, biz_id, version, i)
 cross join lateral (
   select h.order_key
     from taskledger.event h
    where h.kind = k.kind and h.biz_id = k.biz_id and h.version = k.version
    limit 1) e
 where e.order_key is not null
