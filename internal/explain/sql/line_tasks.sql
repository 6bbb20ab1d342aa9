-- Selects the first tasks of a line: the task whose turn it is, and the waiting tasks.
-- $1 order key; $2 number of tasks; $3 number of places that are read.
-- Returns kind, biz_id and state. Locks nothing. Indexes: see taskledger_internal.line_before; event_line, primary key.
with turn as materialized (
  select b.kind, b.biz_id, b.type, b.place
    from taskledger_internal.line_before($1::text, 0, 1) b
)
select l.kind, l.biz_id, l.state
  from (
    select t.kind, t.biz_id, taskledger.state_after(t.type)::text as state, t.place as at
      from turn t
     where t.kind is not null
     union all
    select e.kind, e.biz_id, 'in_line', e.position
      from turn t
     cross join lateral (
       select w.kind, w.biz_id, w.version, w.position
         from taskledger.event w
        where w.order_key = $1::text and w.type = 'lined_up' and w.position > t.place
        order by w.position
        limit $3::bigint) e
     where (e.kind, e.biz_id) is distinct from (t.kind, t.biz_id)
       and not exists (
         select from taskledger.event n
          where n.kind = e.kind and n.biz_id = e.biz_id and n.version = e.version + 1)) l
 order by l.at
 limit $2::bigint
