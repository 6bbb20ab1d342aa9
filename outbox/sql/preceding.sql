-- Selects the events, with the content of their messages, that precede others of their tasks and are still to be
-- published again after a loss.
-- $1 kinds, $2 biz_ids, $3 versions (text array literals). Still to be published are those that were delivered, as
-- followed.sql defines it, by $7, $8 and $9, and not by $4, $5 and $6.
-- Returns rows like unfinished.sql, in position order. Locks nothing. Index: primary key.
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, e.meta::text, content.data::text, content.meta::text
  from unnest($1::text::text[], $2::text::text[], $3::text::integer[]) as o(kind, biz_id, version)
 cross join lateral (
   select p.*
     from taskledger.event p
    where p.kind = o.kind and p.biz_id = o.biz_id and p.version < o.version
    order by p.version
   offset 0) e
 cross join lateral (
   select c.data, c.meta
     from taskledger.event c
    where c.kind = e.kind and c.biz_id = e.biz_id
      and c.version = case when e.type in ('enqueued', 'released', 'interrupted') then 1 else e.version end
    limit 1) content
 where not taskledger.feed_passed(e.xid, e.position, (select taskledger.feed_floor()), $4::text::pg_snapshot,
                                  nullif($5::text, '')::pg_snapshot, $6::bigint)
   and taskledger.feed_passed(e.xid, e.position, (select taskledger.feed_floor()), $7::text::pg_snapshot,
                              nullif($8::text, '')::pg_snapshot, $9::bigint)
 order by e.position
