-- Returns how far a subscriber and the events were at the ends of steps of time, the oldest first. The last one is now.
-- $1 reader, $2 seconds of a step, $3 number of steps, $4 the maximum number of cursor rows to read; a busy
-- subscriber's older places repeat the oldest row's.
-- Locks nothing. Indexes: primary keys of cursor and moment; the event with the greatest position.
with passed as materialized (
  select c.n, floor(extract(epoch from statement_timestamp() - c.recorded_at) / $2::bigint)::bigint as ago,
         greatest(c.after_position, c.seen_top) as position
    from taskledger.cursor c
   where c.reader = $1::text
   order by c.n desc
   limit $4::bigint
), place as materialized (
  select distinct on (p.ago) p.ago, p.position from passed p order by p.ago, p.n desc
)
select coalesce((select p.position from place p where p.ago >= s.ago order by p.ago limit 1),
                (select min(p.position) from place p), 0),
       case when s.ago = 0
            then coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0)
            else coalesce((select m.top from taskledger.moments m
                            where m.at <= statement_timestamp() - make_interval(secs => s.ago * $2::bigint)
                            order by m.at desc
                            limit 1), 0) end
  from generate_series($3::bigint - 1, 0, -1) s (ago)
 order by s.ago desc
