-- append.sql for the end of a transaction: if the event cannot be appended it fails, so that the commit in the
-- same round trip is not executed. It inserts a null version (not_null_violation) if the task is not as
-- expected or the guard is not set. It fails with unique_violation if another transaction has just inserted
-- the version. This costs half as much as a function that raises an error.
-- $1 kind, $2 biz_id, $3 expected version, $4 actor or null for session_user, $5 data, $6 meta (JSON text or null), $7
-- the guard: the value of the transaction-local setting taskledger.attempt, which does not survive a commit; $8 type,
-- $9 types that $8 may follow, $10 the types among them after which it begins an attempt (text array literals). The
-- caller writes $8 to $10 into the text, so there is a statement for each type: reading them takes a tenth of its
-- time.
-- Returns the columns of the new event that the caller does not know. Waits for a concurrent append to the same task.
-- Locks nothing else.
-- Names have their schema: code in the transaction may have set a search_path with others of the same name, or made a
-- temporary table, whose name is also the name of a type.
-- The end of a task with an order key wakes the services: the next in line begins.
-- Index: primary key. The xid is drawn before the position: see enqueue.sql. The last event: see append.sql.
insert into taskledger.event (version, attempt, shard, type, priority, partition, kind, biz_id, order_key, actor, data,
                              meta)
select e.version operator(pg_catalog.+) 1,
       e.attempt operator(pg_catalog.+)
         (e.type operator(pg_catalog.=) any ($10::pg_catalog.text::taskledger.event_type[]))::integer,
       e.shard,
       taskledger_internal.type_in_line($8::pg_catalog.text::taskledger.event_type, e.type, e.order_key), e.priority,
       e.partition, $1::pg_catalog.text, $2::pg_catalog.text, e.order_key, coalesce($4::pg_catalog.text, session_user),
       $5::pg_catalog.text::pg_catalog.json, $6::pg_catalog.text::pg_catalog.json
  from (values (1)) one
  left join lateral (
    select h.version, h.attempt, h.shard, h.type, h.priority, h.partition, h.order_key
      from taskledger.event h
     where h.kind operator(pg_catalog.=) $1::pg_catalog.text
       and h.biz_id operator(pg_catalog.=) $2::pg_catalog.text
       and h.version operator(pg_catalog.>=) $3::integer
     order by h.version desc
     limit 1) e
         on e.version operator(pg_catalog.=) $3::integer
        and e.type operator(pg_catalog.=) any ($9::pg_catalog.text::taskledger.event_type[])
        and pg_catalog.current_setting('taskledger.attempt', true) operator(pg_catalog.=) $7::pg_catalog.text
        and (e.version operator(pg_catalog.>) 1
             or taskledger_internal.archived_version($1::pg_catalog.text, $2::pg_catalog.text) is null)
        and ($8::pg_catalog.text operator(pg_catalog.<>) 'released'
             or e.type operator(pg_catalog.<>) all ('{succeeded,buried,cancelled,expired,discarded}')
             or taskledger_internal.still_ends($1::pg_catalog.text, $2::pg_catalog.text, $3::integer, true))
returning position, attempt, shard, type::pg_catalog.text, priority, coalesce(partition, ''), coalesce(order_key, ''),
          (pg_catalog.date_part('epoch', recorded_at) operator(pg_catalog.*) 1e6)::bigint, session_user,
          case when order_key is not null or taskledger_internal.is_awaited() then taskledger_internal.wake() end
