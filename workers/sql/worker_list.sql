-- The workers that live, or were lost within a day or so.
-- Answers id, since when, for how many milliseconds it is still known to live (0: it is lost), the
-- detail of its lease, and as JSON the groups of shards that it has of those that are divided.
-- Locks nothing. Reads two whole small tables.
select l.holder, l.since, greatest(0, extract(epoch from l.alive_until - clock_timestamp()) * 1000)::bigint, l.detail::text,
       coalesce((select json_agg(json_build_object('kind', o.kind, 'shards', o.shards))
                   from taskledger.shard_owner o
                  where o.worker = l.holder
                    and exists (select from taskledger.lease d where d.name = 'shards/' || l.holder and d.alive_until > clock_timestamp())),
                '[]')::text
  from taskledger.lease l
 where l.name like 'worker/%'
 order by l.holder
