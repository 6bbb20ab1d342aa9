-- The keys among $1 kinds and $2 biz_ids (text array literals) whose last run, before this transaction, another login
-- than the session's has enqueued, or another caller than $3. A run that waits behind a task is a task of kind
-- taskledger.next, and counts while it waits.
-- Locks nothing. Indexes: primary key, event_run.
select k.kind, k.biz_id
  from unnest($1::text::text[], $2::text::text[]) as k(kind, biz_id)
  left join lateral (
    select e.login_id, e.actor
      from taskledger.event e
     where e.kind = k.kind and e.biz_id = k.biz_id and e.run is not null
       and e.xid is distinct from pg_current_xact_id_if_assigned()
     order by e.version desc
     limit 1) newest on true
  join lateral (
    select e.login_id, e.actor
      from taskledger.event e
     where e.kind = k.kind and e.biz_id = k.biz_id and e.version = 1
       and e.xid is distinct from pg_current_xact_id_if_assigned()) first on true
 where (k.kind <> 'taskledger.next' or 'scheduled' = (
         select e.type
           from taskledger.event e
          where e.kind = k.kind and e.biz_id = k.biz_id and e.xid is distinct from pg_current_xact_id_if_assigned()
          order by e.version desc
          limit 1))
   and (coalesce(newest.actor, first.actor) <> $3::text
        or not exists (select from taskledger.logins l
                        where l.id = coalesce(newest.login_id, first.login_id) and l.name = session_user))
 limit 1
