-- Tasks with an order key for an operator, a page at a time, in the order of their places in line.
-- $1 kind or '', $2 fingerprint or '', $3 states (text array literal), $4 least microseconds since the last event;
-- $5 place after which to start, '' for the first; $6 and $7 (unused); $8 number of events to read; $9 order key.
-- Returns the rows that match, and the last row read, matching or not, each with the number of rows read.
-- A task has its place at its newest event that lines it up, schedules it or begins a run.
-- Locks nothing. Indexes: event_line and event_line_scheduled, at most $8 rows of each; primary keys of event and task.
select w.place::text, w.kind, w.biz_id, w.version, w.state, w.matches, w.walked
  from (
   select e.position as place, e.kind, e.biz_id, coalesce(t.version, 0) as version,
          coalesce(t.state::text, '') as state,
          coalesce(p.version = e.version and t.state::text = any ($3::text::text[])
                   and ($1::text = '' or t.kind = $1::text) and ($2::text = '' or t.fingerprint = $2::text)
                   and t.updated_at <= clock_timestamp() - $4::bigint * interval '1 microsecond', false) as matches,
          count(*) over () as walked, row_number() over (order by e.position desc) as from_the_end
     from (
      select u.position, u.kind, u.biz_id, u.version
        from (
         (select l.position, l.kind, l.biz_id, l.version
            from taskledger.event l
           where l.order_key = $9::text and l.type = 'lined_up'
             and l.position > coalesce(nullif($5::text, ''), '0')::bigint
           order by l.position
           limit $8::integer)
          union all
         (select l.position, l.kind, l.biz_id, l.version
            from taskledger.event l
           where l.order_key = $9::text and l.type = 'scheduled'
             and l.position > coalesce(nullif($5::text, ''), '0')::bigint
           order by l.position
           limit $8::integer)) u
       where $6::text is not null and $7::text is not null
       order by u.position
       limit $8::integer) e
    cross join lateral (
      select l.version
        from taskledger.event l
       where l.kind = e.kind and l.biz_id = e.biz_id and (l.type in ('lined_up', 'scheduled') or l.run is not null)
       order by l.version desc
       limit 1) p
     left join taskledger.tasks t on t.kind = e.kind and t.biz_id = e.biz_id) w
 where w.matches or w.from_the_end = 1
 order by w.place
