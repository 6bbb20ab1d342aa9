-- Rights: which rows a role other than the owner may insert, and nothing for PUBLIC.
-- Owner: package migrations. No tables. roles.sql makes the roles, with their grants and their policies.
--
-- The owner is exempt from row-level security. Every other role needs the privilege and
-- a policy: it inserts the rows that the policy admits, by the same statements as the owner.
--
-- No role may insert xid, position or recorded_at: they are defaults, and PostgreSQL computes them in the order of the
-- columns, so the xid is older than the position whatever the role's statement.

-- +goose Up

alter table taskledger.event enable row level security;
alter table taskledger.timer enable row level security;
alter table taskledger.lease enable row level security;

-- Reading is a matter of privileges alone, except of events: see roles.sql. A constant costs no plan anything.
create policy readable on taskledger.timer for select using (true);
create policy readable on taskledger.lease for select using (true);

create policy form on taskledger.lease as restrictive for insert
  with check (taskledger_internal.is_lease(name, holder, since, alive_until, term, detail));
create policy form_of_update on taskledger.lease as restrictive for update
  using (true) with check (taskledger_internal.is_lease(name, holder, since, alive_until, term, detail));

-- Deliveries of a webhook are enqueued by its subscriber alone, and then worked on as tasks of users: see roles.sql.
-- +goose StatementBegin
create function taskledger_internal.is_reserved(kind text) returns boolean
language sql immutable parallel safe
return starts_with(kind, 'taskledger.') and not starts_with(kind, 'taskledger.webhook.');
-- +goose StatementEnd

comment on function taskledger_internal.is_reserved(text) is
  'Returns whether a kind is one of taskledger itself: only its services enqueue tasks of these kinds.';

-- A version of null is left to the constraint of the column: ledger/sql/enqueue_required.sql and append_required.sql
-- insert one to make a commit fail.
-- +goose StatementBegin
create function taskledger_internal.is_first(version integer, attempt integer, shard smallint,
                                             type taskledger.event_type, kind text, biz_id text,
                                             order_key text) returns boolean
language sql immutable parallel safe
return version is null
    or version = 1 and attempt = 0 and shard between 0 and 63
   and case when order_key is null then type in ('enqueued', 'scheduled')
            else type in ('lined_up', 'scheduled') and octet_length(order_key) between 1 and 255
             and order_key !~ '[\u0001-\u001f\u007f-\u009f]' end
   and octet_length(kind) <= 128 and kind ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$'
   and octet_length(biz_id) between 1 and 255 and biz_id !~ '[\u0001-\u001f\u007f-\u009f]';
-- +goose StatementEnd

comment on function taskledger_internal.is_first(integer, integer, smallint, taskledger.event_type, text, text, text) is
  'Reports whether an event may begin a task.';

-- The same tables as ledger.Transitions in Go, for appends: advance_lines alone releases a task in line. Arrays: an
-- expression that calls state_after takes longer to prepare for each transaction than all the rest of an append.
-- +goose StatementBegin
create function taskledger_internal.may_follow(type taskledger.event_type, last taskledger.event_type) returns boolean
language sql immutable parallel safe
return coalesce(last = any (case type
  when 'scheduled' then '{scheduled,snoozed,failed,enqueued,released,interrupted,lined_up}'::taskledger.event_type[]
  when 'lined_up'  then '{scheduled,snoozed,buried,cancelled,expired,discarded}'
  when 'released'  then '{scheduled,snoozed,failed,enqueued,released,interrupted,buried,cancelled,expired,discarded}'
  when 'buried'    then '{scheduled,snoozed,failed,enqueued,released,interrupted,started,progressed,lined_up}'
  when 'cancelled' then '{scheduled,snoozed,failed,enqueued,released,interrupted,started,progressed,lined_up}'
  when 'expired'   then '{scheduled,snoozed,failed,enqueued,released,interrupted,lined_up}'
  when 'discarded' then '{scheduled,snoozed,enqueued,released,interrupted,started,progressed,lined_up}'
  when 'enqueued'  then '{}'
  else '{enqueued,released,interrupted,started,progressed}'
end), false);
-- +goose StatementEnd

comment on function taskledger_internal.may_follow(taskledger.event_type, taskledger.event_type) is
  'Returns whether an event of type may follow one of type last.';

-- +goose StatementBegin
create function taskledger_internal.begins_attempt(type taskledger.event_type, last taskledger.event_type)
returns boolean
language sql immutable parallel safe
return type = 'started'
    or type in ('progressed', 'succeeded', 'failed', 'interrupted', 'snoozed')
   and last in ('enqueued', 'released', 'interrupted');
-- +goose StatementEnd

comment on function taskledger_internal.begins_attempt(taskledger.event_type, taskledger.event_type) is
  'Returns whether an event of type that follows one of type last belongs to a new attempt.';

-- Runs with its owner's rights, because a policy cannot read its own table. Volatile, so that it also sees the rows
-- that the calling statement has inserted. The login comes first: an attempt of the session's own login need not read
-- the leases. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.follows(kind text, biz_id text, version integer, attempt integer, shard smallint,
                                            priority smallint, partition text, order_key text,
                                            type taskledger.event_type,
                                            login_id integer default null)
returns taskledger.event_type
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (
    select e.type
      from taskledger.event e
     where e.kind = follows.kind and e.biz_id = follows.biz_id and e.version = follows.version - 1
       and e.shard = follows.shard and (e.priority = follows.priority or follows.priority is null)
       and e.partition is not distinct from follows.partition
       and follows.attempt = e.attempt + taskledger_internal.begins_attempt(follows.type, e.type)::integer
       and taskledger_internal.may_follow(follows.type, e.type)
       and e.order_key is not distinct from follows.order_key
       and (e.order_key is not null or follows.type <> 'lined_up')
       and taskledger_internal.type_in_line(follows.type, e.type, e.order_key) = follows.type
       and case when follows.login_id is null or e.type not in ('started', 'progressed')
                     or e.login_id = follows.login_id then true
                else not taskledger_internal.is_anothers_worker(e.actor, e.kind) end);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.follows(text, text, integer, integer, smallint, smallint, text, text,
                                                taskledger.event_type, integer) is
  'Returns the type of the event that an event follows; null if it may not follow that event, or if its '
  'attempt, shard, priority (null: any), partition or order key differs from the ledger''s. With a login_id, '
  'also null if the event would end or continue an attempt of a live worker of another login.';

-- Volatile, so that it also reads a login that the calling statement has added. Index: login_name.
-- +goose StatementBegin
create function taskledger_internal.own_logins() returns integer[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return array(select l.id from taskledger.login l where l.name = session_user);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.own_logins() is
  'Returns the ids of the session''s login.';

-- A query in brackets is executed once a statement, and not once a row.
create policy login on taskledger.event as restrictive for insert
  with check (login_id = any ((select taskledger_internal.own_logins())::integer[]));

-- For the policy workers_fence of roles.sql, which cannot read its own table by name: a view reads with its owner's
-- rights. In the policy it costs a fifth of follows per row. Unlike that function it does not see the rows that the
-- calling statement has inserted.
create view taskledger_internal.event_fence as
select kind, biz_id, version, attempt, shard, type, login_id, actor, priority, partition, order_key
  from taskledger.event;

comment on view taskledger_internal.event_fence is
  'The events that workers'' events must follow. Only a policy needs it.';

-- The limits of overload bind every role that inserts events: see 00005_limit.sql. Types from enqueued to lined_up.
create policy limits on taskledger.event as restrictive for insert
  with check (type > 'lined_up' or version is null
              or pg_sequence_last_value('taskledger.limits_set'::regclass) is null
              or not taskledger_internal.exceeds_limit(kind, biz_id, version, type, run)
              or taskledger_internal.may_exceed_limit(kind, biz_id, version, type));

-- Feeds read whole pages of events. A result has at most workers.MaxResultBytes. The times that an enqueue adds to a
-- meta do not count against its limit.
create policy size on taskledger.event as restrictive for insert
  with check (
    coalesce(octet_length(actor), 0) <= 255
    -- advance_lines alone gives a task its turn, with its owner's rights: see the index event_turn.
    and (order_key is null or type <> 'released' or data is null
         or not starts_with(data::text, '{"reason":"turn"'))
    and case
          when coalesce(octet_length(data::text), 0) <= 4096 and coalesce(octet_length(meta::text), 0) <= 4096 then true
          when version is null then true -- see is_first
          when version > 1 then coalesce(octet_length(data::text), 0) <= 524288
                            and coalesce(octet_length(meta::text), 0) <= 65536
          else taskledger_internal.admits(null, octet_length(data::text), octet_length(meta::text) - 256)
        end);

-- As follows. The row's inserting transaction decides, too: where the sequence of positions is behind, a restored event
-- can come after one of this transaction.
-- +goose StatementBegin
create function taskledger_internal.appended_here(kind text, biz_id text, version integer) returns taskledger.event_type
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (
    select e.type
      from taskledger.event e
     where e.kind = appended_here.kind and e.biz_id = appended_here.biz_id and e.version = appended_here.version
       and e.xid = pg_current_xact_id_if_assigned() and age(e.xmin) <= 0
       and e.position > (select f.foreign_until from taskledger_internal.floors f));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.appended_here(text, text, integer) is
  'Returns the type of an event if the calling transaction has inserted it, else null.';

-- A function with its owner's rights asks for the login (session_user) and the roles that it may set, any other for the
-- current role. The catalogue contains the kinds of each policy, even without tasks of a kind. A policy that
-- `taskledger migrate roles` has not made counts as a policy for all kinds. A null is no kind, and hides no other that
-- is refused. Index: pg_policy by table.
-- +goose StatementBegin
create function taskledger_internal.refused_kind(kinds text[], of_login boolean) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  worker constant name := case when of_login then session_user else current_user end;
  how constant text := case when of_login then 'member' else 'usage' end;
begin
  if not of_login and not row_security_active('taskledger.event')
     or of_login and exists (
          select from pg_roles r, pg_class c
           where r.rolname = session_user and c.oid = 'taskledger.event'::regclass
             and (r.rolbypassrls or pg_has_role(r.oid, c.relowner, 'member'))) then
    return null;
  end if;
  return (
    select k.kind
      from unnest(kinds) k(kind)
     where k.kind is not null and not exists (
       select from (
         select p.polname::text as name, obj_description(p.oid, 'pg_policy') as mark
           from pg_policy p
          where p.polrelid = 'taskledger.event'::regclass and p.polcmd in ('a', '*') and p.polpermissive
            and exists (select from unnest(p.polroles) r(id)
                         where case when r.id = 0 then true else pg_has_role(worker, r.id, how) end)) a
        where case
          when coalesce(a.mark, '') !~ '^taskledger migrate roles ' then true
          when a.mark !~ '=' then a.name ~ '_worker$'
          else exists (select from unnest(string_to_array(substring(a.mark from '=(.*)$'), ',')) l(kind)
                        where l.kind = k.kind or right(l.kind, 2) = '.*' and starts_with(k.kind, left(l.kind, -1)))
        end)
     limit 1);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.refused_kind(text[], boolean) is
  'Returns the first of some kinds on which the current role may not work, or the session''s login; null if none.';

-- +goose StatementBegin
create function taskledger_internal.check_kinds(kinds text[], of_login boolean default false) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  refused constant text := taskledger_internal.refused_kind(kinds, of_login);
begin
  if refused is not null then
    raise exception 'taskledger: login % may not work on kind %', session_user, refused
      using errcode = 'insufficient_privilege',
            hint = 'grant it the role worker, or one for this kind: taskledger migrate roles --worker NAME=' || refused;
  end if;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_kinds(text[], boolean) is
  'Returns true if the current role, or the session''s login, may work on all these kinds, else raises an error that '
  'names the first refused.';

-- For a statement that has found no event of a task. With its owner's rights, and stable, so that it reads that
-- statement's snapshot without policies: a plan in a connection can contain the policies of an earlier moment, for
-- example until a role is granted. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.is_hidden(kind text, biz_id text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from taskledger.event e where e.kind = is_hidden.kind and e.biz_id = is_hidden.biz_id) then
    raise exception 'taskledger: login % may not read tasks of kind %', session_user, is_hidden.kind
      using errcode = 'insufficient_privilege',
            hint = 'grant it the role worker, or one for this kind: taskledger migrate roles --worker NAME='
                   || is_hidden.kind;
  end if;
  return false;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.is_hidden(text, text) is
  'Returns false for a missing task, and raises an error for a task that row-level security hides.';

-- In place of the privilege DELETE, with which a role may lock a whole table. The slots of a limit of starts stay: a
-- limit that is set again counts their holders. Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.unset(what text, name text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  case what
    when 'limit' then delete from taskledger.kind_limit l where l.kind = unset.name;
    when 'start limit' then delete from taskledger.start_limit l where l.name = unset.name;
    when 'weight' then delete from taskledger.partition_weight w where w.partition = unset.name;
    when 'pause' then delete from taskledger.pause p where p.kind = unset.name;
    when 'schedule' then delete from taskledger.schedule s where s.name = unset.name;
  end case;
  return found;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.unset(text, text) is
  'Removes a setting of operators and reports whether there was one: the limit or the pause of a kind, a limit of '
  'starts, the weight of a partition, or a schedule.';

-- New functions are executable by PUBLIC: a migration with a function ends with these statements again.
-- TestNothingIsPublic fails if one does not.
revoke all on schema taskledger, taskledger_internal from public;
revoke all on all tables in schema taskledger, taskledger_internal from public;
revoke all on all sequences in schema taskledger, taskledger_internal from public;
revoke all on all functions in schema taskledger, taskledger_internal from public;
revoke all on type taskledger.event_type, taskledger.task_state from public;
