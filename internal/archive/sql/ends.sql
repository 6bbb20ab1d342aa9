-- A digest of positions and times of events.
-- $1 kinds, $2 biz_ids and $3 versions (array literals). Locks nothing. Index: primary key; the lateral limit keeps the
-- planner on it.
select coalesce(md5(string_agg(e.position || ' ' || (extract(epoch from e.recorded_at) * 1e6)::bigint, ','
                               order by k.n)), '')
  from unnest($1::text::text[], $2::text::text[], $3::text::integer[]) with ordinality k(kind, biz_id, version, n)
 cross join lateral (
   select h.position, h.recorded_at
     from taskledger.event h
    where h.kind = k.kind and h.biz_id = k.biz_id and h.version = k.version
    limit 1) e
