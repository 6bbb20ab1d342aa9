-- Selects events, with the content of their messages, that are published again because an operator wants it.
-- $1 positions (array literal). Returns rows like unfinished.sql, in position order. Events that make a task available
-- have the args of version 1. Locks nothing. Indexes: (position), then the primary key.
select e.position, e.version, e.attempt, e.shard, e.type::text,
       (extract(epoch from e.recorded_at) * 1e6)::bigint, e.kind, e.biz_id, e.meta::text,
       content.data::text, content.meta::text
  from unnest($1::text::bigint[]) p(position)
  join taskledger.event e on e.position = p.position
  join taskledger.event content
    on content.kind = e.kind and content.biz_id = e.biz_id
   and content.version = case when e.type in ('enqueued', 'released', 'interrupted') then 1 else e.version end
 order by e.position
