-- The workers that live, or were lost within a day or so.
-- Answers id, since when, for how many milliseconds it is still known to live (0: it is lost), the
-- detail of its lease, and as JSON the groups of shards that it has of those that are divided, and the
-- kinds that are paused. Locks nothing. Reads two whole small tables, and a range of a third.
select l.holder, (extract(epoch from l.since) * 1e6)::bigint,
       greatest(0, extract(epoch from l.alive_until - clock_timestamp()) * 1000)::bigint, l.detail::text,
       coalesce((select json_agg(json_build_object('kind', o.kind, 'shards', o.shards))
                   from taskledger.shard_owner o
                  where o.worker = l.holder
                    and exists (select from taskledger.lease d where d.name = 'shards/' || l.holder and d.alive_until > clock_timestamp())),
                '[]')::text,
       coalesce((select json_agg(substr(s.name, 8)) from taskledger.setting s where s.name >= 'paused/' and s.name < 'paused0'), '[]')::text
  from taskledger.lease l
 where l.name like 'worker/%'
 order by l.holder
