-- Enqueue pays for limits only where they can matter.

-- +goose Up

-- No limit on a payload is below 4 KiB, so that a smaller one needs no look at the settings.
update taskledger.setting set value = '4096'
 where name in ('max_args_bytes', 'max_meta_bytes') and value::integer < 4096;

alter table taskledger.setting add constraint setting_min_bytes
  check (name not in ('max_args_bytes', 'max_meta_bytes') or value::integer >= 4096);

-- Whether a task of this kind, with args and meta of so many bytes, may be enqueued as available.
-- Enqueue asks only for a kind that has a limit, or for a payload over 4 KiB: as a part of the
-- statement these looks cost a quarter of its time on the server, also where they find nothing.
-- Reads settings, limits and counts by key; locks nothing.
-- +goose StatementBegin
create function taskledger.admits(kind text, args_bytes integer, meta_bytes integer) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return not exists (
      select from taskledger.setting s
       where s.name = 'max_args_bytes' and admits.args_bytes > s.value::integer
          or s.name = 'max_meta_bytes' and admits.meta_bytes > s.value::integer)
     and not exists (
      select from taskledger.overload o where o.kind = admits.kind and o.closed);
end
$$;
-- +goose StatementEnd
