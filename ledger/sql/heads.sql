-- Reads the last event of each of many tasks, as conflict.sql does.
-- $1 kinds, $2 biz_ids: text array literals of one length.
-- Returns a row for each task that exists or was archived: its number in the arrays, from 1, and version and type of
-- its last event.
-- Locks nothing. Indexes: primary keys, backwards; the lateral limits keep the planner on them.
select k.n, coalesce(a.version, h.version)::bigint, coalesce(a.type, h.type)
  from unnest($1::text::text[], $2::text::text[]) with ordinality as k(kind, biz_id, n)
  left join lateral (
    select e.version, e.type::text as type
      from taskledger.event e
     where e.kind = k.kind and e.biz_id = k.biz_id
     order by e.version desc
     limit 1) h on true
  left join lateral (
    select c.version, c.state::text as type
      from taskledger_internal.archived_keys(array[k.kind], array[k.biz_id]) c
     where coalesce(h.version, 1) = 1
     limit 1) a on true
 where coalesce(a.version, h.version) is not null
