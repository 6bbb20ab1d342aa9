-- The roles of a ledger: each may do its job and nothing else. The role names of this file get the database's name as
-- prefix, because all databases of a server share roles. No role can log in: grant it to a role that can.
--
--   producer  enqueues tasks, in SQL and in Go
--   worker    runs handlers: package workers
--   relay     the services of taskledger serve: relay, dispatcher, projector, scheduler, schedules and alarms
--   operator  the commands of taskledger that change something, except migrate and rebase
--   reader    the commands that only read
--   archiver  reads everything, seals events, removes finished tasks by the functions of the archive, and erases tasks
--   subscriber  reads events by the feed, and waits for results: outbox.Subscribe, read_feed and advance_feed
--   api       reads the callers of the HTTP API, and redeems links. Its login also needs the roles of the calls that it
--             serves: reader, producer to enqueue, operator to change tasks
--
-- A worker that is limited to kinds gets its own role, with worker's grants and a copy of each policy of worker, to
-- which migrations/limited_worker.go adds the kinds. A policy is copied if its name is worker or begins with worker_.
--
-- `taskledger migrate roles` grants this and takes back everything else. Run it again after an upgrade.

grant usage on schema taskledger to producer, worker, relay, operator, reader, archiver, subscriber, api;
grant usage on schema taskledger_internal to producer, worker, relay, operator, reader, archiver, subscriber, api;

-- Events. No role may insert xid, position or recorded_at: see migrations/00012_rights.sql.
grant select on taskledger.event to worker, relay, operator, reader, archiver, subscriber;
grant select on taskledger_internal.event_fence to worker;
grant select (kind, biz_id, version, type, position) on taskledger.event to producer;
grant insert (version, attempt, shard, type, login_id, data_version, priority, partition, kind, biz_id, order_key,
              actor, data, meta)
   on taskledger.event to producer, worker, relay, operator;

-- The login of an event, which a policy of migrations/00012_rights.sql compares with the session's.
grant select on taskledger.logins to producer, worker, relay, operator, reader, archiver, subscriber;
grant execute on function taskledger_internal.commit_durably to producer, worker, relay, operator, archiver, subscriber;
grant execute on function taskledger_internal.login_id, taskledger_internal.session_login,
   taskledger_internal.own_logins, taskledger_internal.reset_session to producer, worker, relay, operator, subscriber;

-- Tables that an operator or a service writes. A worker reads args, and only such other columns as its job needs.
grant select on taskledger.setting, taskledger.kind_limit, taskledger.overload to producer, worker, relay,
   operator, reader, archiver;
grant select on taskledger_internal.limited_kinds, taskledger.start_limits to producer, worker, relay, operator, reader,
   archiver;
grant select on taskledger.partition_weight, taskledger_internal.partition_weights to relay, operator, reader, archiver;
grant select on taskledger.permit, taskledger.start_token, taskledger.permits, taskledger_internal.recent_starts,
   taskledger.limit_use to relay, operator, reader, archiver;
-- The view permits calls the first two.
grant execute on function taskledger_internal.args_version, taskledger_internal.permit_lasts,
   taskledger_internal.limit_value to relay, operator, reader, archiver;
grant select on taskledger.lease, taskledger.workers, taskledger_internal.dispatcher, taskledger_internal.worker_kinds,
   taskledger_internal.claimed_kinds, taskledger.paused_kinds to worker, relay, operator, reader, archiver;
grant select on taskledger.timer, taskledger.timers, taskledger.rejected, taskledger.event_position_seq to
   relay, operator, reader, archiver;
grant select on taskledger.moment, taskledger.moments to relay, operator, reader, archiver, subscriber;
grant select on taskledger.cursor, taskledger.cursors, taskledger.subscribers, taskledger.floor,
   taskledger_internal.floors, taskledger.incarnation to relay, operator, reader, archiver, subscriber;
grant select on taskledger_internal.relay_mark, taskledger.outbox to relay, operator, reader, archiver;
grant select on taskledger.setting, taskledger.event_position_seq to subscriber;
grant select on taskledger.task, taskledger.task_tag, taskledger.tasks, taskledger.task_count, taskledger.task_counts,
   taskledger_internal.task_totals, taskledger_internal.lingering_tasks, taskledger_internal.lingering_place,
   taskledger_internal.lingering_is_current to relay, operator, reader, archiver;
grant select on taskledger.parked, taskledger_internal.parked_events,
   taskledger_internal.relay_lease, taskledger.schedule, taskledger.pause, taskledger.illegal_event
   to relay, operator, reader, archiver;
grant select on taskledger.kind_stats, taskledger.kind_hour, taskledger.kind_minutes, taskledger.subscriber_state,
   taskledger.subscriber_parked to relay, operator, reader, archiver;
grant select on taskledger.migration to relay, operator, reader, archiver, subscriber;
grant execute on function taskledger.schema_version to relay, operator, reader, archiver;

-- Each role also writes these tables. LOCK TABLE in a mode that stops others needs UPDATE, DELETE or TRUNCATE on the
-- whole table: so UPDATE is granted by columns, and functions delete. Only the relay, the services' own role, may
-- delete from tables that the services alone write.
grant insert on taskledger.timer to producer, worker, relay, operator;
grant insert on taskledger.lease to worker, relay;
grant update (holder, since, alive_until, term, backend, detail, login) on taskledger.lease to relay;
grant update (alive_until, term, detail, login) on taskledger.lease to worker;
grant execute on function taskledger_internal.release_relay, taskledger_internal.bound_leases to relay;
grant execute on function taskledger_internal.remove_lease, taskledger_internal.sweep_leases to worker;
grant execute on function taskledger_internal.fence_key, taskledger_internal.hold_session,
   taskledger_internal.pause_pushed,
   taskledger_internal.session_holds_ms to worker;
grant insert, delete on taskledger.cursor to relay;
grant execute on function taskledger_internal.thin_moments to relay;
grant insert (at, snapshot, top, bound) on taskledger.moment to relay;
-- To lock the newest row, in internal/feed/sql/cursor_append.sql.
grant update (recorded_at) on taskledger.cursor to relay;
grant update (unaudited_xor) on taskledger.cursor to operator, subscriber;
grant insert (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, audited, unaudited,
   unaudited_xor, origin, timeline, mark, login) on taskledger.cursor to operator, subscriber;
grant execute on function taskledger_internal.begin_incarnation to relay, subscriber;
grant insert on taskledger.parked, taskledger.illegal_event to relay;
grant insert on taskledger.task, taskledger.task_tag to relay;
grant update (state, aside, version, attempt, failures, priority, partition, updated_at, error, fingerprint, due_at,
   lingering) on taskledger.task to relay;
grant insert, delete on taskledger.task_count to relay;
grant insert on taskledger.kind_stats, taskledger.kind_hour to relay;
grant execute on function taskledger_internal.merge_kind_stats, taskledger_internal.remove_subscriber_parked to relay;
-- Registering, rebuilding and failing subscribers with tables is the work of their programs.
grant insert on taskledger.subscriber_state, taskledger.subscriber_parked to relay;
grant update (version, shape, tables, parks, since, failed_position, failed_kind, failed_biz_id, failed_version,
   failures, failing_since, failed_at, failure, wanted, work, work_at, work_done, work_total, work_result)
   on taskledger.subscriber_state to relay;
grant update (reader, state, error, failures) on taskledger.subscriber_parked to relay;
grant execute on function taskledger_internal.retry_subscriber, taskledger_internal.discard_subscriber,
   taskledger_internal.failing_event, taskledger_internal.ask_subscriber to operator;
grant update (next_at, last_at, last_kind, last_biz_id, passed, passed_at) on taskledger.schedule to relay, operator;
grant update (kind, args, cron, zone, every_ms, anchor, fixed_delay_ms, missed, missed_limit, overlap, paused_at,
   paused_by, pause_reason, revision, actor, updated_at) on taskledger.schedule to operator;
grant update (max_waiting, policy, retry_after_ms, actor, updated_at) on taskledger.kind_limit to operator;
grant update (weight, actor, updated_at) on taskledger.partition_weight to operator;
grant update (discarded) on taskledger.parked to operator;
grant update (actor, reason) on taskledger.pause to operator;
grant insert on taskledger.schedule, taskledger.kind_limit, taskledger.partition_weight, taskledger.pause to operator;
grant execute on function taskledger_internal.remove_permits, taskledger_internal.tidy_tokens to relay;
grant execute on function taskledger_internal.unset, taskledger_internal.set_start_limit,
   taskledger_internal.remove_parked, taskledger_internal.remove_illegal_events to operator;

-- The seal. Only the owner replaces salts, by taskledger.erase_salts: its rows cannot be changed otherwise.
grant select on taskledger.seal, taskledger.seal_cut, taskledger.seal_rest to relay, operator, reader, archiver;
grant insert (batch, first_leaf, first_node, top, is_late, positions, leaves, nodes, salts) on taskledger.seal
   to archiver;
grant execute on function taskledger_internal.sealed_leaf, taskledger_internal.count_rows
   to relay, operator, reader, archiver;
grant execute on function taskledger_internal.lock_seal, taskledger_internal.thin_cursor,
   taskledger_internal.begin_incarnation to archiver;
grant insert (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, audited, unaudited,
   unaudited_xor, origin, timeline, mark, login) on taskledger.cursor to archiver;
grant update (unaudited_xor) on taskledger.cursor to archiver;

-- The callers of the HTTP API.
grant select on taskledger.token to api, operator;
grant insert (id, name, hash, role, kinds, rate, actor, expires_at, link_until) on taskledger.token to operator;
grant execute on function taskledger_internal.redeem_link to api;
grant update (expires_at, revoked_at, revoked_by) on taskledger.token to operator;

-- The NATS server of serve: each role reads the password of its own user in NATS, and the relay adds the users.
grant select on taskledger.broker to producer, subscriber, worker, relay, operator, reader, archiver;
grant select on taskledger.broker_user to producer, worker, relay, operator, subscriber;
grant insert on taskledger.broker_user to relay;
create policy producer on taskledger.broker_user for select to producer using (name = 'waiter');
create policy worker on taskledger.broker_user for select to worker using (name = 'worker');
create policy operator on taskledger.broker_user for select to operator using (name = 'operator');
create policy subscriber on taskledger.broker_user for select to subscriber using (
  name in ('subscriber', 'served', 'served-server'));
create policy relay on taskledger.broker_user for all to relay using (true);

-- The rows that each role locks. Nothing writes the column.
grant execute on function taskledger_internal.lock_workers to worker;
grant execute on function taskledger_internal.lock_archive to relay, operator;
grant select on taskledger.mutex to relay, operator;
grant update (is_locked) on taskledger.mutex to relay, operator;
grant insert (name) on taskledger.mutex to relay, operator;
create policy relay on taskledger.mutex for all to relay using (starts_with(name, 'alarm/'));
create policy operator on taskledger.mutex for all to operator using (
  name = 'schedules' or starts_with(name, 'alarm/'));

-- Whether there are limits and whether they are reached, for the policy limits, and the count of rejected calls.
grant select on taskledger.limits_set to producer, worker, relay, operator;
grant execute on function taskledger_internal.exceeds_limit, taskledger_internal.may_exceed_limit to producer, worker,
   relay, operator;
grant usage on taskledger.rejected to producer, relay, operator;

-- Whether the relay sleeps, and the notification that wakes it.
grant select on taskledger.asleep_until to producer, worker, relay, operator;
grant update on taskledger.asleep_until to relay;
grant execute on function taskledger_internal.relay_sleeps, taskledger_internal.wake to producer, worker, relay,
   operator;
grant select on taskledger.awaited_until to producer, worker, relay, operator;
grant execute on function taskledger_internal.is_awaited to producer, worker, relay, operator;
grant execute on function taskledger_internal.await_outcomes to worker, relay, operator, reader, subscriber;

-- Whether the database may have lost an event that a worker has read.
grant select on taskledger.incarnation to producer, worker;
grant execute on function taskledger_internal.origin, taskledger_internal.incarnation, taskledger_internal.last_crash
  to producer, worker;
grant execute on function taskledger_internal.session_incarnation
   to producer, worker, relay, operator;

-- Which events with the transaction's id are its own.
grant select on taskledger_internal.floors to producer;
grant execute on function taskledger_internal.restored_until to producer, relay, operator, reader, archiver, subscriber;

-- Functions that statements, views and policies call. They read nothing that their caller could not read.
grant execute on function taskledger_internal.installation, taskledger.state_after, taskledger.shard_of to producer,
   worker, relay, operator, reader, archiver, subscriber;
grant execute on function taskledger_internal.due_at, taskledger_internal.with_moment, taskledger_internal.is_reserved,
   taskledger_internal.is_first to producer, worker, relay, operator;
grant execute on function taskledger_internal.follows, taskledger_internal.type_in_line,
   taskledger_internal.appended_here, taskledger_internal.admits to producer, worker, relay, operator;
grant execute on function taskledger_internal.with_times, taskledger_internal.existing_tasks,
   taskledger_internal.check_existing, taskledger_internal.enqueue_again, taskledger_internal.runs_archived,
   taskledger_internal.overfull_entry
   to producer, relay, operator;
grant execute on function taskledger_internal.origin, taskledger_internal.timeline, taskledger_internal.incarnation,
   taskledger_internal.last_crash, taskledger_internal.feed_floor,
   taskledger_internal.foreign_position,
   taskledger_internal.position_behind, taskledger_internal.late_xids, taskledger_internal.late_shares to relay,
   operator, reader, archiver, subscriber;
grant execute on function taskledger_internal.feed_page, taskledger_internal.feed_tally,
   taskledger_internal.feed_passed, taskledger_internal.feed_lag to relay, operator, reader, archiver, subscriber;
grant execute on function taskledger_internal.place, taskledger_internal.heads_page to relay,
   operator, reader, archiver, subscriber;
grant execute on function taskledger.read_feed, taskledger.advance_feed, taskledger_internal.may_add_subscriber to
   subscriber;
grant execute on function taskledger_internal.subscriber_reader, taskledger_internal.check_window,
   taskledger_internal.append_cursor, taskledger_internal.thin_cursor, taskledger_internal.lock_cursor,
   taskledger.seek_feed, taskledger_internal.has_tables, taskledger_internal.subscriber_login,
   taskledger_internal.is_cursor to operator, subscriber;
-- A feed in Go that has advanced nothing calls it, whatever its role.
grant execute on function taskledger_internal.check_owner to relay, operator, subscriber;
grant execute on function taskledger_internal.mark_feed, taskledger.remove_subscriber, taskledger.give_subscriber to
   operator;
grant execute on function taskledger_internal.unbegun_kinds, taskledger_internal.unhandled_kinds
  to relay, operator, reader, archiver;
grant execute on function taskledger_internal.line_before, taskledger_internal.stopped_lines
  to relay, operator, reader, archiver;
grant execute on function taskledger_internal.is_primary to worker, relay, operator;
grant execute on function taskledger_internal.server_run to relay, operator, reader, archiver;
grant execute on function taskledger_internal.is_hidden to worker;
grant execute on function taskledger_internal.worker_alive_ms, taskledger_internal.lease_kinds to worker,
   relay, operator, reader, archiver;
grant execute on function taskledger_internal.is_lease, taskledger_internal.check_kinds,
   taskledger_internal.refused_kind to worker, relay;
grant execute on function taskledger.enqueue, taskledger.enqueue_many, taskledger_internal.change_own_task to producer;
grant execute on function taskledger.cancel, taskledger.release, taskledger.reschedule, taskledger_internal.change,
   taskledger_internal.check_change to producer, operator;
grant execute on function taskledger_internal.change_task, taskledger_internal.check_actor,
   taskledger_internal.check_times to operator;
grant execute on function taskledger_internal.check_actor, taskledger_internal.check_times to producer;
grant execute on function taskledger_internal.fire_timers, taskledger_internal.remove_awaiting,
   taskledger_internal.begin_next,
   taskledger_internal.remove_obsolete_timers, taskledger_internal.advance_lines to relay;
grant execute on function taskledger_internal.end_of_time to producer, worker, relay, operator, reader, archiver;

-- The archive: see 00023_archive.sql.
grant select on taskledger.archived_until to producer, worker, relay, operator, reader, archiver;
grant execute on function taskledger_internal.archived_until to producer, worker, relay, operator, reader, archiver;
grant execute on function taskledger_internal.archived_version to producer, worker, relay, operator;
grant execute on function taskledger_internal.still_has, taskledger_internal.still_ends to worker, relay, operator;
grant execute on function taskledger_internal.discard_archived to worker, relay;
grant execute on function taskledger_internal.archived_beyond, taskledger_internal.last_archived to relay, operator,
   reader, archiver, subscriber;
grant execute on function taskledger_internal.archived_keys to producer, worker, relay, operator, reader, archiver,
   subscriber;
grant execute on function taskledger_internal.archived_tasks, taskledger_internal.archived_before,
   taskledger_internal.archived_totals, taskledger_internal.archive_tally, taskledger_internal.archive_state
   to relay, operator, reader, archiver;
grant execute on function taskledger_internal.begin_archive, taskledger_internal.archive_waits,
   taskledger_internal.archivable, taskledger_internal.remove_tasks, taskledger_internal.end_archive,
   taskledger_internal.set_archive, taskledger_internal.archive_places, taskledger_internal.set_key_life,
   taskledger_internal.forget_keys, taskledger_internal.merge_minutes, taskledger_internal.cut_seal to archiver;

-- Erasure: see 00025_erasure.sql.
grant execute on function taskledger_internal.erased_until to producer, worker, relay, operator, reader, archiver,
   subscriber;
grant execute on function taskledger_internal.has_erased_args to operator, producer;
grant execute on function taskledger_internal.erase_tasks, taskledger_internal.erase_salts_at to archiver;
grant select on taskledger.erasure, taskledger.erasures to relay, operator, reader, archiver;

grant select on taskledger.archive_gap, taskledger.archive_gaps to relay, operator, reader, archiver;
grant select on taskledger.archive_gaps to subscriber;
grant select on taskledger.archive_setting, taskledger.key_life, taskledger_internal.archive_settings,
   taskledger_internal.key_lives to relay, operator, reader, archiver;

grant execute on function taskledger_internal.append_event, taskledger_internal.may_follow,
   taskledger_internal.begins_attempt, taskledger_internal.locked_events to worker, relay, operator;

-- Workers in SQL, with the functions that they call with the rights of their caller.
grant execute on function taskledger.heartbeat, taskledger.claim, taskledger.claim_next, taskledger.finish,
   taskledger.fail, taskledger.snooze to worker;
grant execute on function taskledger_internal.is_anothers_worker, taskledger_internal.check_lease,
   taskledger_internal.may_have_lease, taskledger_internal.poll_place, taskledger_internal.set_poll_place,
   taskledger_internal.may_claim, taskledger_internal.lock_waiting, taskledger_internal.lock_in_turn,
   taskledger_internal.take_over, taskledger_internal.attempt_of, taskledger_internal.args_version,
   taskledger_internal.is_limited, taskledger_internal.lost_holders to worker;
-- Workers in Go.
grant execute on function taskledger_internal.begin_attempts to worker;
grant execute on function taskledger_internal.short_in_a_row, taskledger_internal.newest_of to worker, relay, operator,
   reader, archiver;
grant execute on function taskledger_internal.failures_of, taskledger_internal.policy_of,
   taskledger_internal.retry_delay, taskledger_internal.retry_limit, taskledger_internal.deadline_of to worker;
grant execute on function taskledger_internal.shortened, taskledger_internal.error_text, taskledger_internal.check_key,
   taskledger_internal.check_actor, taskledger_internal.check_times, taskledger_internal.check_retry,
   taskledger_internal.check_meta, taskledger_internal.check_nesting to worker;

-- Reading events. A producer only needs the events that its own transaction has appended: its statements return them.
create policy worker_reads on taskledger.event for select to worker, relay, operator, reader, archiver using (true);
create policy producer_reads on taskledger.event for select to producer using (
  xid = pg_current_xact_id_if_assigned() and position > (select f.foreign_until from taskledger_internal.floors f));

create policy subscriber on taskledger.event for select to subscriber using (true);

-- The subscriber of a webhook enqueues its deliveries, with the grants of a producer. Their keys can be predicted from
-- the events, so no other login may enqueue one. It pauses them if the receiver answers 410 Gone.
grant execute on function taskledger_internal.pause_receiver to subscriber;
create policy deliver on taskledger.event for insert to subscriber with check (
  taskledger_internal.is_first(version, attempt, shard, type, kind, biz_id, order_key)
  and starts_with(kind, 'taskledger.webhook.')
  and taskledger_internal.subscriber_login('subscriber/webhook-' || substr(kind, length('taskledger.webhook.') + 1))
      = session_user
  and not starts_with(actor, 'schedule/'));

-- The services own their cursors, and subscribers theirs. A subscriber belongs to the login that first read as it, and
-- a login may own a limited number of subscribers. Operators move and pause subscribers, and leave them to their
-- logins.
create policy relay on taskledger.cursor for all to relay using (reader <> 'seal');
create policy archiver on taskledger.cursor for all to archiver using (reader = 'seal');
create policy subscriber on taskledger.cursor for all to subscriber using (
  starts_with(reader, 'subscriber/')
  and coalesce(taskledger_internal.subscriber_login(reader), session_user) = session_user)
  with check (starts_with(reader, 'subscriber/')
              and login = session_user
              and coalesce(taskledger_internal.subscriber_login(reader), session_user) = session_user
              and taskledger_internal.is_cursor(reader, n, seen, seen_top, seen_bound, until, top, bound,
                                                after_position, audited, origin, mark)
              and taskledger_internal.may_add_subscriber(reader, n));
create policy operator on taskledger.cursor for all to operator using (starts_with(reader, 'subscriber/'))
  with check (starts_with(reader, 'subscriber/')
              and login is not distinct from taskledger_internal.subscriber_login(reader)
              and taskledger_internal.is_cursor(reader, n, seen, seen_top, seen_bound, until, top, bound,
                                                after_position, audited, origin, mark));

-- A producer begins tasks. If too many tasks of the kind wait, it discards its own one in the same transaction.
create policy producer on taskledger.event for insert to producer with check (
  taskledger_internal.is_first(version, attempt, shard, type, kind, biz_id, order_key)
  and not starts_with(kind, 'taskledger.') and not starts_with(actor, 'schedule/')
  or type = 'discarded' and version = 2 and not starts_with(actor, 'schedule/')
  and taskledger_internal.appended_here(kind, biz_id, 1) in ('enqueued', 'scheduled', 'lined_up')
  and taskledger_internal.follows(kind, biz_id, version, attempt, shard, priority, partition, order_key, type)
      in ('enqueued', 'scheduled', 'lined_up'));

-- A worker appends the events of attempts, and ends tasks that wait or run. It releases nothing that is finished.
-- The actor of the two events that leave a task running must not be a live worker of another login, because workers
-- and the dispatcher go by the lease of that actor. Nor does a worker end an attempt of such a worker: the version of
-- an attempt can be read and guessed, so it is a fence and no proof of the login.
--
-- PostgreSQL tries the policies of a table from the last name to the first: workers_fence admits most inserts of
-- workers, and worker the rest. A limited worker gets no copy of workers_fence, because it may not read the view.
create policy workers_fence on taskledger.event for insert to worker with check (
  not taskledger_internal.is_reserved(kind)
  and type in ('succeeded', 'failed', 'interrupted', 'snoozed', 'buried', 'expired', 'discarded')
  and exists (
    select from taskledger_internal.event_fence e
     where e.kind = event.kind and e.biz_id = event.biz_id and e.version = event.version - 1
       and e.shard = event.shard and e.priority = event.priority
       and e.partition is not distinct from event.partition and e.order_key is not distinct from event.order_key
       and event.attempt = e.attempt + taskledger_internal.begins_attempt(event.type, e.type)::integer
       and taskledger_internal.may_follow(event.type, e.type)
       and (e.type in ('enqueued', 'released', 'interrupted')
            or e.type in ('started', 'progressed') and e.login_id = event.login_id)));

create policy worker on taskledger.event for insert to worker with check (
  version is null
  or not taskledger_internal.is_reserved(kind)
  and (type in ('succeeded', 'failed', 'interrupted', 'snoozed', 'buried', 'expired', 'discarded', 'started',
                'progressed')
  and taskledger_internal.follows(kind, biz_id, version, attempt, shard, priority, partition, order_key, type, login_id)
      in ('enqueued', 'released', 'interrupted', 'started', 'progressed', 'failed')
  and (type not in ('started', 'progressed') or not taskledger_internal.is_anothers_worker(actor, kind))
  or type = 'released'
  and taskledger_internal.follows(kind, biz_id, version, attempt, shard, priority, partition, order_key, type)
      = 'failed'));

-- The services enqueue firings and alarms, and release, bury, cancel or discard tasks. They finish no attempt but of
-- alarms, and end the records of rebuilds of subscribers and the stream, which they do.
create policy relay on taskledger.event for insert to relay with check (
  taskledger_internal.is_first(version, attempt, shard, type, kind, biz_id, order_key)
  and (kind = 'taskledger.alarm' or not starts_with(kind, 'taskledger.'))
  or (kind = 'taskledger.alarm' or not taskledger_internal.is_reserved(kind)
      and type in ('released', 'lined_up', 'interrupted', 'buried', 'discarded', 'cancelled')
      or kind = 'taskledger.operation' and biz_id ^@ any ('{subscriber.rebuild/,stream.rebuild/}'::text[])
      and type in ('succeeded', 'buried'))
  and taskledger_internal.follows(kind, biz_id, version, attempt, shard, priority, partition, order_key, type)
      is not null);

-- Operators release, bury, cancel and postpone tasks, and change their priority. They change schedules with
-- a record of it, run them now, pass over their firings, and try alarms. Their other acts are recorded as tasks of
-- kind taskledger.operation.
create policy operator on taskledger.event for insert to operator with check (
  taskledger_internal.is_first(version, attempt, shard, type, kind, biz_id, order_key)
  and (kind in ('taskledger.schedule', 'taskledger.alarm', 'taskledger.operation')
       or not starts_with(kind, 'taskledger.'))
  or (kind in ('taskledger.schedule', 'taskledger.alarm', 'taskledger.operation')
      or not taskledger_internal.is_reserved(kind)
      and type in ('released', 'lined_up', 'buried', 'cancelled', 'scheduled', 'discarded'))
  and taskledger_internal.follows(kind, biz_id, version, attempt, shard,
                                  case when type <> 'scheduled' then priority end, partition, order_key,
                                  type) is not null);

-- A timer belongs to an event of the same transaction, and is due when the statement began or later, before the end
-- of time, as the times of package ledger. The timer of a task with predecessors is never due. The scheduler reads all
-- timers of that moment, so each of its polls would pay for others there.
create policy producer on taskledger.timer for insert to producer, relay, operator with check (
  due_at >= statement_timestamp()
  and case reason when 'after' then due_at = taskledger_internal.end_of_time()
                  else due_at < taskledger_internal.end_of_time() end
  and reason || ' ' || taskledger_internal.appended_here(kind, biz_id, version) = any (
    '{due scheduled,due snoozed,retry failed,after scheduled,start_by enqueued,start_by scheduled,start_by lined_up,
      finish_by enqueued,finish_by scheduled,finish_by lined_up}'::text[]));
create policy worker on taskledger.timer for insert to worker with check (
  due_at >= statement_timestamp()
  and case reason when 'after' then due_at = taskledger_internal.end_of_time()
                  else due_at < taskledger_internal.end_of_time() end
  and reason || ' ' || taskledger_internal.appended_here(kind, biz_id, version) = any (
    '{due scheduled,due snoozed,retry failed,after scheduled,start_by enqueued,start_by scheduled,start_by lined_up,
      finish_by enqueued,finish_by scheduled,finish_by lined_up}'::text[]));

-- A worker holds the leases of its own login, and a login may hold a limited number of them. A worker's ended lease
-- counts as free: another login may take it, and with it the worker's name, if it may work on all its kinds.
create policy worker on taskledger.lease for all to worker using (
  name like 'worker/%'
  and (login = session_user
       or alive_until <= statement_timestamp()
          and taskledger_internal.refused_kind(taskledger_internal.lease_kinds(detail), true) is null))
  with check (name like 'worker/%' and login = session_user
              and taskledger_internal.may_have_lease(name, detail));

create policy relay on taskledger.lease for all to relay using (
  name in ('relay', 'discarder', 'sealer', 'dispatcher', 'broker') or name like 'broker/%');
