-- Lists the subscribers that are furthest behind, by their positions, with their lag, and how many there are.
-- $1 greatest lag that is counted; $2 most subscribers that are listed.
-- Locks nothing. Indexes: as feed_lag for the listed subscribers, and the primary key of cursor, a few rows
-- of each subscriber.
with recursive name as (
  (select c.reader from taskledger.cursor c
    where c.reader >= 'subscriber/' and c.reader < 'subscriber0'
    order by c.reader limit 1)
  union all
  select (select c.reader from taskledger.cursor c
           where c.reader > n.reader and c.reader < 'subscriber0'
           order by c.reader limit 1)
    from name n
   where n.reader is not null
), placed as materialized (
  select n.reader, c.mark, greatest(c.after_position, c.seen_top) as "position", c.recorded_at, c.is_local, c.login
    from name n
   cross join lateral (
     select m.mark, m.after_position, m.seen_top, m.recorded_at, m.is_local, m.login
       from taskledger.cursors m
      where m.reader = n.reader
      order by m.n desc
      limit 1) c
   where n.reader is not null
), listed as materialized (
  select p.* from placed p order by p.is_local, p.position, p.reader limit $2::bigint
)
select (select count(*) from placed), substr(c.reader, 12), coalesce(c.mark ->> 'paused' = 'true', false), c.position,
       (extract(epoch from c.recorded_at) * 1e6)::bigint, c.is_local,
       l.events, (extract(epoch from l.oldest) * 1e6)::bigint,
       coalesce((extract(epoch from clock_timestamp() - l.oldest) * 1e3)::bigint, 0),
       coalesce(c.login, ''), coalesce(c.login = session_user, true)
  from listed c
 cross join lateral taskledger_internal.feed_lag(c.reader, $1::integer) l
 order by c.reader
