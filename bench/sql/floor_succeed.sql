-- Inserts version 2 of tasks. $1 kind, $2 biz_ids.
insert into floor.event (version, attempt, shard, type, kind, biz_id, actor, data)
select 2, 1, 7, 'succeeded', $1::text, b, session_user, '{"worker":"worker-1","attempt":1,"ms":0}'
  from unnest($2::text[]) b
    on conflict do nothing
