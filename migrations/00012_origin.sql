-- Where a cursor was written is asked once per page: planned once per session, it takes 20 µs and
-- not 85, as an SQL function of the same body does.

-- +goose Up

-- +goose StatementBegin
create or replace function taskledger.origin() returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (select c.system_identifier::text from pg_control_system() c) || '/'
      || (select d.oid::text from pg_database d where d.datname = current_database());
end
$$;
-- +goose StatementEnd
