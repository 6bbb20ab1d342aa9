-- Reads the identity and the settings of a session, so that they can be restored.
-- Returns one row: the login, the role ('none' if no role is set), client_encoding, and the settings of this session, a
-- text array of names and values in turn, which may be empty. Settings of the address, the login and the database
-- are not among them: RESET restores those. Nor are custom settings, which PostgreSQL does not list. Locks nothing.
-- Reads no table.
select session_user::text, current_setting('role'), current_setting('client_encoding'),
       coalesce((
         select array_agg(pair.value order by s.name, pair.n)
           from pg_settings s
          cross join lateral (values (1, s.name), (2, s.setting)) pair (n, value)
          where s.source = 'session' and s.name not like 'transaction\_%'), '{}')::text
