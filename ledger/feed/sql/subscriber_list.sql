-- Lists subscribers with their lag: the events that each has not passed.
-- $1 name, '' for all; $2 greatest lag that is counted.
-- Locks nothing. Indexes: as taskledger.feed_pending, and the primary key of cursor, a few rows of each subscriber.
select s.name, s.is_paused, s.position, (extract(epoch from s.moved_at) * 1e6)::bigint, s.is_local,
       l.events, (extract(epoch from l.oldest) * 1e6)::bigint,
       coalesce((extract(epoch from clock_timestamp() - l.oldest) * 1e3)::bigint, 0),
       coalesce(s.login, ''), coalesce(s.login = session_user, true)
  from taskledger.subscribers s
 cross join lateral (
   select count(*) as events, min(p.recorded_at) as oldest
     from (select f.recorded_at
             from taskledger.feed_pending('subscriber/' || s.name, $2::integer) f
            limit $2::integer) p) l
 where $1::text in ('', s.name)
 order by s.name
