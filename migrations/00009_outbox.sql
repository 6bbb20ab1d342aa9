-- The outbox: events that the relay has yet to publish, or could not, and that subscribers could not handle.
-- Owner: package outbox.
--
--   parked             written and read by outbox
--   subscriber_parked  written and read by outbox
--
-- Other packages read the views parked_events and relay_mark. The view outbox is for operators.

-- +goose Up

create table taskledger.parked (
  position  bigint primary key,
  kind      text collate "C" not null,
  biz_id    text collate "C" not null,
  version   integer not null,
  reason    text not null,
  parked_at timestamptz not null default clock_timestamp(),
  discarded boolean not null default false);
create index parked_waiting on taskledger.parked (position) where not discarded;

comment on table taskledger.parked is
  'Events that the relay could not publish. They block no others. The status is degraded until they are discarded.';

create view taskledger_internal.parked_events as
select p.position, p.kind, p.biz_id, p.version, p.reason, p.parked_at
  from taskledger.parked p
 where not p.discarded;

comment on view taskledger_internal.parked_events is
  'The events that the relay could not publish, except discarded ones.';

-- The only SQL that names the fields of the relay's mark, which outbox/mark.go defines.
create view taskledger_internal.relay_mark as
select c.n, c.seen, c.recorded_at, c.timeline, greatest(c.seen_top, c.after_position) as top,
       (c.mark->>'generation')::bigint as generation, c.mark->>'stream_created' as stream_created,
       (c.mark->>'stream_seq')::bigint as stream_seq, (c.mark->>'stream_tail')::bigint as stream_tail,
       c.mark->>'server' as server, (c.mark->>'max_age_ms')::bigint as max_age_ms
  from taskledger.cursors c
 where c.reader = 'relay';

comment on view taskledger_internal.relay_mark is
  'The events that the relay had published when it wrote each row of its cursor: none above position top, and all '
  'visible in seen, up to message stream_seq of the stream created at stream_created. Messages of later events are '
  'behind stream_tail. generation is the number of losses of the stream plus 1. '
  'Before the first session, generation, stream_created and both sequences are null. '
  'max_age_ms is how long the stream keeps messages, 0 forever. server is the server_run() in which the relay has made '
  'sure that no other copy of the database works.';

-- Copies of a database differ only in where they run.
-- +goose StatementBegin
create function taskledger_internal.server_run() returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return floor(extract(epoch from pg_postmaster_start_time()) * 1e6)::bigint || '/'
         || (select d.oid from pg_database d where d.datname = current_database());
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.server_run() is
  'Returns the difference between this database and a running physical copy of it: the start of the server, '
  'and the oid of the database.';

-- Three arms, where the feed has two: late events below the window, events within the published part of the window that
-- are not visible in it, and events above. Its cost depends only on the events it returns.
create view taskledger.outbox as
with relay as materialized (
  select c.seen, c.seen_top, c.seen_bound, c.until, c.bound, c.after_position, taskledger_internal.feed_floor() as floor
    from taskledger.cursors c
   where c.reader = 'relay'
   order by c.n desc
   limit 1)
select late.position, late.kind, late.biz_id, late.version, late.type, late.recorded_at
  from relay r
 cross join lateral taskledger_internal.late_xids(r.seen, r.seen_bound) x
 cross join lateral (
   select e.position, e.kind, e.biz_id, e.version, e.type, e.recorded_at
     from taskledger.event e
    where (e.xid, e.position) > (x, r.floor) and (e.xid, e.position) <= (x, r.seen_top)
      and (r.until is null or e.position > r.after_position or not pg_visible_in_snapshot(x, r.until))
   offset 0) late
union all
select unseen.position, unseen.kind, unseen.biz_id, unseen.version, unseen.type, unseen.recorded_at
  from relay r
 cross join lateral taskledger_internal.late_xids(r.until, r.bound) x
 cross join lateral (
   select e.position, e.kind, e.biz_id, e.version, e.type, e.recorded_at
     from taskledger.event e
    where (e.xid, e.position) > (x, greatest(r.seen_top, r.floor)) and (e.xid, e.position) <= (x, r.after_position)
      and not pg_visible_in_snapshot(x, r.until)
   offset 0) unseen
 where r.until is not null
union all
select e.position, e.kind, e.biz_id, e.version, e.type, e.recorded_at
  from taskledger.event e
 where e.position > coalesce(
   (select case when r.until is null then r.seen_top else greatest(r.seen_top, r.after_position) end from relay r), 0);

comment on view taskledger.outbox is 'The events that the relay has not yet published, in no particular order.';

-- Runs with its owner's rights: a role with the privilege DELETE may lock the whole table. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.remove_parked(positions bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.parked p where p.position = any (positions) and not p.discarded returning p.position;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.remove_parked(bigint[]) is
  'Removes events, except discarded events, from the list of events that cannot be published, and returns their '
  'positions.';

create table taskledger.subscriber_parked (
  reader     text collate "C" not null,  -- of the subscriber, or rebuild/ or verify/ and it
  kind       text collate "C" not null,
  biz_id     text collate "C" not null,
  version    integer not null,
  position   bigint not null,
  state      text collate "C" not null default 'parked',  -- parked, retry, discarded
  error      text not null,             -- of an event that has failed; '': an earlier event of its task is parked
  failures   integer not null,
  parked_at  timestamptz not null default clock_timestamp(),
  primary key (reader, kind, biz_id, version));

comment on table taskledger.subscriber_parked is
  'Events that subscribers have not handled: parked because they fail, or an earlier one of their task does, or '
  'discarded by an operator.';

-- Runs with its owner's rights, as above. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.remove_subscriber_parked(reader text, kind text, biz_id text)
returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.subscriber_parked p
   where p.reader = remove_subscriber_parked.reader
     and (remove_subscriber_parked.kind is null
          or p.kind = remove_subscriber_parked.kind and p.biz_id = remove_subscriber_parked.biz_id
             and p.state <> 'discarded')
  returning p.version;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.remove_subscriber_parked(text, text, text) is
  'Removes the parked events of a task from the list of a subscriber, or with null its whole list, and '
  'returns their versions.';

-- An error of a handler can contain the texts of the event. Index: none; the table contains few rows.
-- +goose StatementBegin
create function taskledger_internal.erase_failures(kinds text[], biz_ids text[]) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
  update taskledger.subscriber_parked p
     set error = 'erased'
    from unnest(erase_failures.kinds, erase_failures.biz_ids) k(kind, biz_id)
   where p.kind = k.kind and p.biz_id = k.biz_id and p.error <> '';
end;
-- +goose StatementEnd

comment on function taskledger_internal.erase_failures(text[], text[]) is
  'Replaces the errors of parked events of erased tasks.';

-- An operator changes the following columns by functions, which check that the act is on record.
-- Locks the rows. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.retry_subscriber(subscriber text, kind text, biz_id text) returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  perform taskledger_internal.check_recorded('subscriber.retry', retry_subscriber.subscriber);
  return query
  update taskledger.subscriber_parked p
     set state = 'retry'
   where p.reader = 'subscriber/' || retry_subscriber.subscriber and p.kind = retry_subscriber.kind
     and p.biz_id = retry_subscriber.biz_id and p.state <> 'discarded'
  returning p.version;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.retry_subscriber(text, text, text) is
  'Marks the parked events of a task to be handled again, and returns their versions.';

-- Events that wait for the discarded event are to be handled. Locks the rows. Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.discard_subscriber(subscriber text, kind text, biz_id text) returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  perform taskledger_internal.check_recorded('subscriber.discard', discard_subscriber.subscriber);
  return query
  with parked as (
    update taskledger.subscriber_parked p
       set state = case when p.error <> '' then 'discarded' else 'retry' end
     where p.reader = 'subscriber/' || discard_subscriber.subscriber and p.kind = discard_subscriber.kind
       and p.biz_id = discard_subscriber.biz_id and p.state <> 'discarded'
    returning p.version, p.state
  ), stopped as (
    insert into taskledger.subscriber_parked
           (reader, kind, biz_id, version, position, state, error, failures)
    select 'subscriber/' || discard_subscriber.subscriber, f.kind, f.biz_id, f.version, f.position, 'discarded',
           f.error, f.failures
      from taskledger_internal.failing_event('subscriber/' || discard_subscriber.subscriber) f
     where f.kind = discard_subscriber.kind and f.biz_id = discard_subscriber.biz_id
        on conflict do nothing
    returning version
  )
  select parked.version from parked where parked.state = 'discarded'
   union all
  select stopped.version from stopped;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.discard_subscriber(text, text, text) is
  'Discards the failed events of a task, parked or stopping the subscriber, and returns their versions.';
