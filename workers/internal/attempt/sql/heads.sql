-- The heads of the tasks whose messages arrived together.
-- $1 kind; $2 biz_ids and $3 versions of the messages' events: text array literals of one length.
-- Returns, for each task that exists, its number in the list (from 1), its last event, when the message's own event
-- was recorded (null: there is no such event), and for how many milliseconds the lease of the worker that appended
-- the last event is still valid (0: expired, or not a worker); the database's clock; the task's args as they are stored
-- ('' for none), or 'sha256:' and their SHA-256 (hex) if they have more than 512 bytes; and the meta beside them if a
-- handler may need a part of it, else ''; whether a process waits for outcomes; the task's shard; and in the first row
-- the incarnation of the database, '/' and when its server started, or '' before the first feed.
-- Raises an error on a standby, where a task may be missing, and for a task that row-level security hides.
-- Locks nothing. Index: primary keys; the lateral limits keep the planner on them. The planner does not see the lists
-- through a subquery, so that one plan serves all of them: planning costs more than reading a few heads.
-- date_part is exact to the microsecond until 2106, and costs a tenth of extract, which computes a numeric. A regular
-- expression in place of the three strpos would cost a fifth of the statement, and so would the hash of small args.
-- Few tasks need an earlier event or a lease: joins for them would cost a tenth.
select r.i::integer, h.version, h.type::text, h.attempt, coalesce(h.actor, ''),
       (date_part('epoch', case
          when h.version = r.version then h.recorded_at
          when h.version > r.version then (
            select e.recorded_at
              from taskledger.event e
             where e.kind = $1::text and e.biz_id = r.biz_id and e.version = r.version
             limit 1) end) * 1e6)::bigint,
       case when h.type in ('started', 'progressed')
            then coalesce((select w.alive_ms from taskledger.worker_alive_ms(h.actor) w limit 1), 0) else 0 end,
       (select (date_part('epoch', clock_timestamp()) * 1e6)::bigint),
       case when octet_length(args.data) > 512 then 'sha256:' || encode(sha256(convert_to(args.data, 'UTF8')), 'hex')
            else coalesce(args.data, '') end,
       case when strpos(args.meta, '"encoding"') > 0 or strpos(args.meta, '"finish_by"') > 0
              or strpos(args.meta, '"watermill"') > 0 then args.meta else '' end,
       coalesce((select taskledger.is_awaited()), false), h.shard,
       case when r.i = 1 then coalesce(taskledger.session_incarnation(), '') else '' end
  from unnest((select $2::text::text[]), (select $3::text::integer[])) with ordinality as r(biz_id, version, i)
  left join lateral (
   select e.version, e.type, e.attempt, e.shard, e.actor, e.recorded_at, e.data, e.meta
     from taskledger.event e
    where e.kind = $1::text and e.biz_id = r.biz_id
    order by e.version desc
    limit 1) h on true
  left join lateral (
   select e.data, e.meta
     from taskledger.event e
    where h.version > 1 and e.kind = $1::text and e.biz_id = r.biz_id and e.version = 1
    limit 1) f on true
 cross join lateral (
   select case when h.version = 1 then h.data else f.data end::text as data,
          case when h.version = 1 then h.meta else f.meta end::text as meta) args
 where taskledger.is_primary()
   and (h.version is not null or taskledger.is_hidden($1::text, r.biz_id))
