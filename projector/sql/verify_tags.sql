-- The tags of an array that are missing in taskledger.task_tag, as indexes in the array, from 0.
-- $1 tags, $2 positions of first events: array literals of one length. Locks nothing. Index: primary key.
select (k.i - 1)::integer
  from unnest($1::text::text[], $2::text::bigint[]) with ordinality as k(tag, position, i)
  left join lateral (
    select true as is_there
      from taskledger.task_tag g
     where g.tag = k.tag and g.position = k.position
     limit 1) g on true
 where g.is_there is null
 order by k.i
