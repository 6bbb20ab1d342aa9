-- Selects the biz_id of each task of a kind that another login has enqueued.
-- $1 kind, $2 biz_ids (array literal). Locks nothing. Index: primary key of event.
select e.biz_id
  from unnest($2::text::text[]) b(id)
 cross join lateral (
   select f.biz_id, f.login_id from taskledger.event f
    where f.kind = $1::text and f.biz_id = b.id and f.version = 1) e
 where not exists (select from taskledger.logins l where l.id = e.login_id and l.name = session_user)
