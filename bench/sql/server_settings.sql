-- Returns the server's version, its settings of durability, and every setting that differs from the
-- default. No parameters. Takes no locks.
select name, coalesce(current_setting(name), '')
  from pg_settings
 where name in ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_level')
    or source in ('command line', 'configuration file', 'environment variable')
   and category not like 'File Locations%'
   and name not in ('port', 'listen_addresses', 'unix_socket_directories', 'log_timezone', 'TimeZone', 'DateStyle')
   and name not like 'lc\_%'
 order by name
