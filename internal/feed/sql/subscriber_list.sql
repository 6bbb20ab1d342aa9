-- Lists subscribers with their lag: the events that each has not passed.
-- $1 name, '' for all; $2 greatest lag that is counted; $3 the name after which the list begins, '' for the first one;
-- $4 most subscribers.
-- Locks nothing. Indexes: as feed_lag, and the primary key of cursor, a few rows of each subscriber of
-- the list.
with recursive name as (
  (select c.reader from taskledger.cursor c
    where c.reader > 'subscriber/' || $3::text and c.reader < 'subscriber0'
    order by c.reader limit 1)
  union all
  select (select c.reader from taskledger.cursor c
           where c.reader > n.reader and c.reader < 'subscriber0'
           order by c.reader limit 1)
    from name n
   where n.reader is not null
), listed as (
  select n.reader from name n
   where n.reader is not null and $1::text in ('', substr(n.reader, 12))
   limit $4::bigint
)
select substr(n.reader, 12), coalesce(c.mark ->> 'paused' = 'true', false), greatest(c.after_position, c.seen_top),
       (extract(epoch from c.recorded_at) * 1e6)::bigint, c.is_local,
       l.events, (extract(epoch from l.oldest) * 1e6)::bigint,
       coalesce((extract(epoch from clock_timestamp() - l.oldest) * 1e3)::bigint, 0),
       coalesce(c.login, ''), coalesce(c.login = session_user, true)
  from listed n
 cross join lateral (
   select m.mark, m.after_position, m.seen_top, m.recorded_at, m.is_local, m.login
     from taskledger.cursors m
    where m.reader = n.reader
    order by m.n desc
    limit 1) c
 cross join lateral taskledger_internal.feed_lag(n.reader, $2::integer) l
 order by n.reader
