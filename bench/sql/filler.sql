-- Creates a table of about 300 MB, whose WAL makes the server create its WAL files. No parameters.
create table filler as
select repeat(md5(i::text), 20) as line
  from generate_series(1, 500000) i
