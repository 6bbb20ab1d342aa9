-- What led to a task, so that what a task has led to can be found.

-- +goose Up

-- Set when the row is inserted and never changed, so that the updates stay HOT.
alter table taskledger.task add column cause text collate "C";  -- kind/biz_id of the task whose event led to this one; null: none

-- +goose StatementBegin
-- The task that a meta names as its cause, as ledger.ParseEventID reads it; null: none.
create function taskledger.cause_of(meta json) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  part text[];
begin
  if meta::text not like '%"causation"%' then
    return null;
  end if;
  part := regexp_match(meta->>'causation', '^([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)/(.+)/([0-9]{1,18})@-?[0-9]{1,18}$');
  if part is not null and octet_length(part[1]) <= 128 and octet_length(part[2]) <= 255 and part[2] !~ '[\u0001-\u001f\u007f-\u009f]'
     and part[3]::bigint between 1 and 2147483647 then
    return part[1] || '/' || part[2];
  end if;
  return null;
exception when others then  -- escapes that PostgreSQL stores but cannot look into
  return null;
end
$$;
-- +goose StatementEnd

update taskledger.task t
   set cause = taskledger.cause_of(e.meta)
  from taskledger.event e
 where e.kind = t.kind and e.biz_id = t.biz_id and e.version = 1 and e.meta is not null
   and taskledger.cause_of(e.meta) is not null;

drop function taskledger.cause_of(json);

create index task_cause on taskledger.task (cause, kind, biz_id) where cause is not null;
