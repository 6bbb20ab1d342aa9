-- Appends the first two events of tasks that are discarded because too many of their kind wait, unless their
-- key exists.
-- $1 kinds, $2 biz_ids, $3 shards, $4 actors ('' or null for session_user), $5 args, $6 metas, $7 versions of the args'
-- formats: text array literals of one length, sorted by key.
-- Returns the tasks that were inserted. Waits for concurrent transactions that insert the same keys. Locks
-- nothing else. Index: primary key.
-- The second event is inserted from the row of the first, so its position is higher.
with tx as materialized (
  select taskledger_internal.session_login() as login_id
), entry as materialized (
  select e.i, tx.login_id, e.kind, e.biz_id, e.shard::integer as shard, e.actor, e.args, e.meta,
         e.data_version::smallint as data_version
    from tx
   cross join unnest($1::text::text[], $2::text::text[], $3::text::text[],
                     $4::text::text[], $5::text::text[], $6::text::text[],
                     $7::text::text[])
         with ordinality as e(kind, biz_id, shard, actor, args, meta, data_version, i)
), first as (
  insert into taskledger.event (version, attempt, shard, type, login_id, data_version, kind, biz_id, actor, data, meta)
  select 1, 0, e.shard, 'enqueued', e.login_id, e.data_version, e.kind, e.biz_id,
         coalesce(nullif(e.actor, ''), session_user),
         e.args::json, e.meta::json
    from entry e
   order by e.i
      on conflict (kind, biz_id, version) do nothing
  returning kind, biz_id, position
), second as (
  insert into taskledger.event (version, attempt, shard, type, login_id, kind, biz_id, actor, data)
  select 2, 0, e.shard, 'discarded', e.login_id, f.kind, f.biz_id,
         coalesce(nullif(e.actor, ''), session_user),
         '{"reason":"too many tasks of its kind wait"}'
    from first f
   cross join lateral (
     select n.shard, n.login_id, n.actor
       from entry n
      where n.kind = f.kind and n.biz_id = f.biz_id
      order by n.i
      limit 1) e
)
select f.kind, f.biz_id, f.position
  from first f
