-- Reads the tasks of keys whose enqueue inserted nothing, the limits that may be the reason, and whether the
-- transaction may be unable to see the task.
-- $1 kinds, $2 biz_ids, $3 args to compare (null for no args): text array literals of one length.
-- Returns one row per key, in order; version is null if the task does not exist. Its args are null if they are equal
-- or another login enqueued it, and empty if it has none.
-- Locks nothing. Index: primary key, twice per key (in existing_tasks, because a producer may not read args).
select t.position, t.version, t.type::text, coalesce(t.same_args, false), t.stored_args,
       coalesce(octet_length(e.args), 0), limits.args, limits.meta,
       coalesce(nullif(o.policy, 'discard_oldest'), ''), coalesce(o.waiting, 0), coalesce(o.max_waiting, 0),
       coalesce(o.scheduled, 0), coalesce(o.retry_after_ms, 0),
       current_setting('transaction_isolation') in ('repeatable read', 'serializable')
  from unnest($1::text::text[], $2::text::text[], $3::text::text[]) with ordinality as e(kind, biz_id, args, i)
 cross join (
   select max(s.value::integer) filter (where s.name = 'max_args_bytes') as args,
          max(s.value::integer) filter (where s.name = 'max_meta_bytes') as meta
     from taskledger.setting s) limits
  left join taskledger.overload o on o.kind = e.kind
  left join taskledger_internal.existing_tasks($1::text::text[], $2::text::text[], $3::text::text[]) t on t.i = e.i
 order by e.i
