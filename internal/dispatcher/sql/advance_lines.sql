-- Makes the next tasks of lines available.
-- $1 order keys: a text array literal; $2 size up to which args are returned. It must be the first statement of a READ
-- COMMITTED transaction that writes.
-- Returns the position of each turn and its time in microseconds since 1970, with the args and the meta of the task if
-- it has lined up by its first event and they are small, otherwise null and ''. They are also null if the task lined up
-- after the statement began.
-- Locks and indexes: see taskledger_internal.advance_lines; and the primary key.
select t.position, (date_part('epoch', t.recorded_at) * 1e6)::bigint, e.data, coalesce(e.meta::text, '')
  from taskledger_internal.advance_lines($1::text::text[]) t
  left join lateral (
    select l.data::text as data, l.meta
      from taskledger.event l
     where l.kind = t.kind and l.biz_id = t.biz_id and l.version = t.version - 1 and l.type = 'lined_up'
       and (l.version = 1 or l.run is not null) and octet_length(l.data::text) <= $2::bigint
     limit 1) e on true
