-- The import of events from files into an empty ledger.
-- Owner: package ledger.
--
-- Package internal/archive calls these functions, and copies the events between them.

-- +goose Up

-- The lock waits for open transactions that have written events, and keeps others out until this one ends. A row of
-- login that a session added and no event refers to may be there; its id is kept for its name.
-- +goose StatementBegin
create function taskledger_internal.begin_import(ids integer[], names text[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  taken record;
begin
  lock table taskledger.event, taskledger.login in share row exclusive mode;
  if exists (select from taskledger.event) then
    raise exception 'taskledger: the ledger is not empty' using errcode = 'object_not_in_prerequisite_state',
      hint = 'import into a new database, after taskledger migrate and before anything else';
  end if;
  select l.id, l.name, n.name as wanted into taken
    from unnest(begin_import.ids, begin_import.names) n(id, name)
    join taskledger.login l on l.id = n.id and l.name <> n.name
   limit 1;
  if found then
    raise exception 'taskledger: login id % is of % here, and of % in the files', taken.id, taken.name, taken.wanted
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'import into a new database, after taskledger migrate and before anything else';
  end if;
  insert into taskledger.login (id, name) overriding system value
  select n.id, n.name from unnest(begin_import.ids, begin_import.names) n(id, name)
      on conflict (id) do nothing;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.begin_import(integer[], text[]) is
  'Locks an empty ledger for an import until the transaction ends, and adds the logins of its events.';

-- Inserts the same timers as the statements of package ledger; each event contains its timer's time.
-- Indexes: primary key of event, event_run.
-- +goose StatementBegin
create function taskledger_internal.end_import() returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  partial record;
  timers bigint;
begin
  select p.kind, p.biz_id, p.first, p.events, p.last into partial
    from (
      select e.kind, e.biz_id, min(e.version) as first, count(*) as events, max(e.version) as last
        from taskledger.event e
       group by e.kind, e.biz_id
      having min(e.version) <> 1 or count(*) <> max(e.version)) p
   where p.first <> 1 or exists ( -- the end of a duplicate of an archived task follows the archived versions
     select from taskledger.event e
      where e.kind = p.kind and e.biz_id = p.biz_id and e.version > 1
        and not (e.type = 'discarded' and (e.data is null or strpos(e.data::text, '"reason":"archived"') > 0))
        and not exists (
          select from taskledger.event b
           where b.kind = e.kind and b.biz_id = e.biz_id and b.version = e.version - 1))
   limit 1;
  if found then
    raise exception 'taskledger: the files contain % of the events of %/%, from version % to %', partial.events,
      partial.kind, partial.biz_id, partial.first, partial.last using errcode = 'object_not_in_prerequisite_state',
      hint = 'import all volumes of the ledger together, from the first position on';
  end if;
  if exists (select from taskledger.event e
              where not exists (select from taskledger.login l where l.id = e.login_id)) then
    raise exception 'taskledger: the files do not name the logins of all events'
      using errcode = 'object_not_in_prerequisite_state', hint = 'export the events again';
  end if;
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select taskledger_internal.due_at(null, t.at), t.kind, t.biz_id, t.version, t.reason
    from (
     select e.kind, e.biz_id, r.version, r.reason, r.at
       from taskledger.event e
      cross join lateral (
        select n.version, n.meta
          from taskledger.event n
         where n.kind = e.kind and n.biz_id = e.biz_id
           and n.version = taskledger_internal.args_version(e.kind, e.biz_id)) args
      cross join lateral (values
        (e.version, 'due', case when e.type not in ('snoozed', 'scheduled') then null
                                when e.version = 1 or e.run is not null then e.meta->>'run_at'
                                else e.data->>'run_at' end),
        (e.version, 'retry', case e.type when 'failed' then e.data->>'retry_at' end),
        (args.version, 'start_by', args.meta->>'start_by'),
        (args.version, 'finish_by', args.meta->>'finish_by')) m(version, reason, moment)
      cross join lateral (values (m.version, m.reason, m.moment::timestamptz)) r(version, reason, at)
      where e.type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')
        and r.at is not null
        and not exists (select from taskledger.event n
                         where n.kind = e.kind and n.biz_id = e.biz_id and n.version = e.version + 1)
     union all
     select e.kind, e.biz_id, e.version, 'after', taskledger_internal.end_of_time()
       from taskledger.event e
      where e.type = 'scheduled' and (e.version = 1 or e.run is not null)
        and e.meta->>'after' is not null and e.meta->>'run_at' is null
        and not exists (select from taskledger.event n
                         where n.kind = e.kind and n.biz_id = e.biz_id and n.version = e.version + 1)) t;
  get diagnostics timers = row_count;
  return timers;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.end_import() is
  'Checks that the imported events are the whole history of each task, and adds the timers of unfinished tasks. '
  'Returns the number of timers.';

revoke all on all functions in schema taskledger_internal from public;
