-- A page of the newest events before a position, newest first. Returns the matching events, and the last event of the
-- page in any case: first whether an event ends the page, and whether it matches.
-- $1 position, $2 number of events to read; $3 kinds and $4 types (array literals), $5 actor, $6 prefix of kind/biz_id;
-- empty: any.
-- Locks nothing. Index: (position), backwards.
select p.n = $2::bigint, m.matches, p.position, p.version, p.attempt, p.shard, p.type::text,
       (extract(epoch from p.recorded_at) * 1e6)::bigint, p.kind, p.biz_id, coalesce(p.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = p.login_id), ''),
       p.data_version, p.priority, coalesce(p.partition, ''), coalesce(p.run, 0), coalesce(p.order_key, ''),
       p.data::text, p.meta::text
  from (
    select e.*, row_number() over (order by e.position desc) as n
      from (
        select e.* from taskledger.event e
         where e.position < $1::bigint
         order by e.position desc
         limit $2::integer) e) p
 cross join lateral (
   select ($3::text = '{}' or p.kind = any($3::text::text[]))
      and ($4::text = '{}' or p.type = any($4::text::taskledger.event_type[]))
      and ($5::text = '' or p.actor = $5::text)
      and ($6::text = '' or starts_with(p.kind || '/' || p.biz_id, $6::text)) as matches
   offset 0) m
 where m.matches or p.n = $2::bigint
 order by p.position desc
