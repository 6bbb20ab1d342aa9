-- Inserts version 2 of a task. $1 kind, $2 biz_id.
insert into floor.event (version, attempt, shard, type, kind, biz_id, actor, data)
values (2, 1, 7, 'succeeded', $1::text, $2::text, session_user, '{"worker":"worker-1","attempt":1,"ms":0}')
    on conflict do nothing
