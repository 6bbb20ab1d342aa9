-- Tasks off the usual way for an operator, a stretch at a time, by key.
-- $1 kind or '', $2 fingerprint or '' (not used), $3 states (text array literal), $4 for how many
-- microseconds at least nothing has happened to them; $5 fingerprint, $6 kind, $7 biz_id of the
-- task behind which to begin, '' for the first; $8 how many rows to look at.
-- Answers those that match, and the last row looked at, matching or not; and how many it looked at.
-- Locks nothing. Index: task_aside.
select w.fingerprint, w.kind, w.biz_id, w.version, w.state::text, w.matches, w.walked
  from (
   select coalesce(s.fingerprint, '') as fingerprint, s.kind, s.biz_id, s.version, s.state,
          s.state::text = any ($3::text::text[])
            and ($1::text = '' or s.kind = $1::text)
            and s.updated_at <= clock_timestamp() - $4::bigint * interval '1 microsecond' as matches,
          count(*) over () as walked,
          row_number() over (order by s.kind desc, s.biz_id desc) as from_the_end
     from (
      select t.fingerprint, t.kind, t.biz_id, t.version, t.state, t.updated_at
        from taskledger.task t
       where t.aside and ($1::text = '' or t.kind = $1::text) and $2::text is not null and $5::text is not null
         and (t.kind, t.biz_id) > (greatest($6::text, $1::text), $7::text)
       order by t.kind, t.biz_id
       limit $8::integer) s) w
 where w.matches or w.from_the_end = 1
 order by w.kind, w.biz_id
