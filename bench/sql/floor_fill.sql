-- Inserts version 1 of many tasks. $1 kind, $2 their biz_ids, $3 their args (JSON text).
insert into floor.event (version, attempt, shard, type, kind, biz_id, actor, data)
select 1, 0, 7, 'enqueued', $1::text, b, session_user, $3::text::json
  from unnest($2::text[]) b
