-- Appends version 1 of many tasks, except for keys that exist and for kinds whose limit is reached and
-- discards. It appends nothing at all if args or meta of an entry exceed their limit, or if the limit of an
-- entry's kind is reached and rejects.
-- $1 kinds, $2 biz_ids, $3 shards, $4 actors ('' or null for session_user), $5 args, $6 metas: text array literals
-- of one length. They are sorted by key, so that two callers cannot deadlock, unless the order of the tasks
-- matters. Positions are in the order of the arrays.
-- $7 is 1 to ignore the limits of the kinds, else 0.
-- $8 versions of the args' formats: an array literal like the others. $9 priorities (0 or null: default), $10
-- partitions ('' or null: none): array literals that may be shorter.
-- Returns the tasks that were inserted. Waits for concurrent transactions that insert the same keys. Locks
-- nothing else. Index: primary key.
with entry as materialized (
  select e.i, e.kind, e.biz_id, e.shard::integer as shard, e.actor, e.args, e.meta,
         e.data_version::smallint as data_version, coalesce(e.priority::smallint, 0) as priority,
         nullif(e.partition, '') as partition
    from unnest($1::text::text[], $2::text::text[], $3::text::text[],
                $4::text::text[], $5::text::text[], $6::text::text[], $8::text::text[], $9::text::text[],
                $10::text::text[])
         with ordinality as e(kind, biz_id, shard, actor, args, meta, data_version, priority, partition, i)
), limits as materialized (
  select max(s.value::integer) filter (where s.name = 'max_args_bytes') as args,
         max(s.value::integer) filter (where s.name = 'max_meta_bytes') as meta
    from taskledger.setting s
), full_kind as materialized (
  select o.kind, o.policy from taskledger.overload o where o.closed and $7::integer = 0
), tx as materialized (
  select pg_current_xact_id() as xid,
         taskledger_internal.session_login() as login_id, taskledger_internal.wake()
   where not exists (
     select from entry e join full_kind f on f.kind = e.kind
      where f.policy <> 'discard')
     and not exists (
     select from entry e cross join limits
      where octet_length(e.args) > limits.args or octet_length(e.meta) > limits.meta)
)
insert into taskledger.event (version, attempt, shard, type, login_id, data_version, priority, partition, kind, biz_id,
                              actor, data, meta)
select 1, 0, e.shard, 'enqueued', tx.login_id, e.data_version, e.priority, e.partition, e.kind, e.biz_id,
       coalesce(nullif(e.actor, ''), session_user), e.args::json, e.meta::json
  from tx cross join entry e
 where not exists (select from full_kind f where f.kind = e.kind)
 order by e.i
    on conflict (kind, biz_id, version) do nothing
returning kind, biz_id, position, type::text
