-- Returns the events of some tasks that are parked under a name, or discarded under that name or another.
-- $1 name, $2 the other name; $3 kinds and $4 biz_ids of the tasks: text array literals of one length.
-- Locks nothing. Index: primary key; the lateral limit keeps the planner on it.
select p.kind, p.biz_id, p.version, p.state = 'discarded'
  from (select distinct k.kind, k.biz_id from unnest($3::text::text[], $4::text::text[]) as k(kind, biz_id)) k
 cross join (select distinct n.name from unnest(array[$1::text, $2::text]) as n(name)) n
 cross join lateral (
   select q.kind, q.biz_id, q.version, q.state
     from taskledger.subscriber_parked q
    where q.reader = n.name and q.kind = k.kind and q.biz_id = k.biz_id
      and (q.state = 'discarded' or n.name = $1::text)
   offset 0) p
