-- Returns the tables of a reader that do not exist.
-- $1 reader, $2 schema. Locks nothing. Index: primary key.
select t.name
  from taskledger.subscriber_state p
 cross join lateral unnest(p.tables) t(name)
 where p.reader = $1::text and to_regclass(format('%I.%I', $2::text, t.name)) is null
 order by 1
