-- Tasks in exceptional states (ledger.State.Exceptional) for an operator, a page at a time, by key.
-- $1 kind or '', $2 fingerprint or '' (unused), $3 states (text array literal), $4 least microseconds since the last
-- event; $5 fingerprint, $6 kind and $7 biz_id of the task at which to start, '' for the first; $8 number of
-- rows to read.
-- Returns the rows that match, and the last row read, matching or not, each with the number of rows read.
-- Locks nothing. Index: task_aside, once for each state.
select w.fingerprint, w.kind, w.biz_id, w.version, w.state::text, w.matches, w.walked
  from (
   select coalesce(s.fingerprint, '') as fingerprint, s.kind, s.biz_id, s.version, s.state,
          s.updated_at <= clock_timestamp() - $4::bigint * interval '1 microsecond' as matches,
          count(*) over () as walked,
          row_number() over (order by s.kind desc, s.biz_id desc) as from_the_end
     from (
      select p.*
        from unnest($3::text::text[]) a(state)
       cross join lateral (
         select t.fingerprint, t.kind, t.biz_id, t.version, t.state, t.updated_at
           from taskledger.tasks t
          where t.exceptional = a.state::taskledger.task_state
            and ($1::text = '' or t.kind = $1::text) and $2::text is not null and $5::text is not null
            and (t.kind, t.biz_id) >= (greatest($6::text, $1::text), $7::text)
          order by t.kind, t.biz_id
          limit $8::integer) p
       order by p.kind, p.biz_id
       limit $8::integer) s) w
 where w.matches or w.from_the_end = 1
 order by w.kind, w.biz_id
