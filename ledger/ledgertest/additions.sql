-- Statements that drop a test's additions: other schemas, and relations, functions and types in the schema public.
select coalesce(string_agg(a.statement, ';' order by a.step, a.statement), '')
  from (select 1 as step, format('drop schema %I cascade', n.nspname) as statement
          from pg_namespace n
         where n.nspname not in ('public', 'taskledger', 'taskledger_internal', 'information_schema')
           and n.nspname !~ '^pg_'
        union all
        select 2, format('drop %s if exists public.%I cascade',
                         case c.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence'
                                        when 'f' then 'foreign table' when 'c' then 'type' else 'table' end, c.relname)
          from pg_class c
         where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f', 'c')
        union all
        select 3, format('drop routine if exists %s cascade', p.oid::regprocedure)
          from pg_proc p
         where p.pronamespace = 'public'::regnamespace
        union all
        select 4, format('drop type if exists public.%I cascade', t.typname)
          from pg_type t
         where t.typnamespace = 'public'::regnamespace and t.typtype in ('d', 'e', 'r')) a
