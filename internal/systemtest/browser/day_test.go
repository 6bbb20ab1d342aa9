package browser_test

// daySQL is a day of a shop: tasks of 17 kinds with their events, as workers would have appended them. A partner has
// been down for 40 minutes.
const daySQL = `
with tx as materialized (
  select pg_current_xact_id() as xid, taskledger_internal.login_id() as login_id
), kind(kind, per_hour, run_ms, bad, dead, prefix, error, message) as (
  values ('order.confirm', 26, 14, 12, 3, 'order-', '*pgconn.PgError', 'order %s is locked by another transaction'),
         ('payment.capture', 22, 210, 60, 14, 'order-', '*stripe.Error',
          'card_declined: insufficient funds for order %s'),
         ('mail.send.receipt', 26, 88, 30, 9, 'order-', '*textproto.Error',
          '421 4.7.0 smtp.mailer.example: try again later, session %s'),
         ('mail.send.newsletter', 14, 61, 8, 0, 'campaign-41/', '*textproto.Error',
          '450 mailbox %s is busy'),
         ('invoice.render', 18, 640, 20, 0, 'inv-2026-', '*exec.ExitError', 'wkhtmltopdf: exit status 1 for page %s'),
         ('invoice.archive', 18, 25, 4, 0, 'inv-2026-', '*s3.Error',
          'SlowDown: reduce your request rate, request %s'),
         ('webhook.deliver.partner', 24, 150, 90, 12, 'evt_', '*url.Error',
          'POST https://hooks.partner-%s.example/v1: context deadline exceeded'),
         ('image.resize', 12, 980, 18, 4, 'sku-', '*image.FormatError', 'unknown format of upload %s'),
         ('stock.sync', 10, 45, 40, 10, 'warehouse-2/', '*json.SyntaxError', 'invalid character ''<'' after %s bytes'),
         ('stock.reserve', 20, 9, 6, 0, 'order-', '*shop.OutOfStock', 'no stock of item %s'),
         ('search.index', 30, 11, 2, 0, 'sku-', '*elastic.Error', 'version conflict of document %s'),
         ('coupon.grant', 8, 4, 3, 0, 'customer-', '*shop.Expired', 'campaign of customer %s has ended'),
         ('loyalty.points', 12, 6, 2, 0, 'order-', '*shop.Frozen', 'account %s is frozen'),
         ('fraud.score', 22, 330, 15, 2, 'order-', '*url.Error',
          'GET https://score.example/%s: connection reset by peer'),
         ('shipment.label', 9, 410, 25, 3, 'order-', '*dhl.Error', 'address of order %s cannot be resolved'),
         ('customer.export', 1, 9200, 0, 0, 'customer-', '', ''),
         ('report.daily', 1, 2400, 0, 0, 'day-', '', '')
), task as (
  select k.*, i,
         k.prefix || (10400 + i * 3 + h.h % 3) || case when k.prefix ~ '/$' then '-' || h.h % 97 else '' end as biz_id,
         a.at, h.h, 2 + h.h % 11 as wait_ms, k.run_ms * (60 + h.h % 90) / 100 as ms,
         case when k.kind in ('customer.export', 'report.daily') then 'shop-3-p9ad'
              when k.kind in ('mail.send.receipt', 'mail.send.newsletter', 'stock.reserve', 'fraud.score',
                              'coupon.grant', 'loyalty.points') or k.kind ~ '^(order|payment)' and h.h % 2 = 0
              then 'shop-1-k7f2' else 'shop-2-m3qx' end as worker,
         case when a.at > now() - interval '40 minutes' and k.kind = 'webhook.deliver.partner'
              then case when a.at > now() - interval '12 minutes' then 'retrying'
                        when h.h % 5 = 0 then 'retried' else 'dead' end
              when a.at > now() - interval '90 seconds' and h.h % 3 = 0 then 'running'
              when a.at > now() - interval '4 minutes' and h.h % 1000 < k.bad then 'retrying'
              when h.h % 1000 < k.dead then 'dead'
              when h.h % 1000 < k.bad then 'retried' else 'done' end as fate
    from kind k
   cross join lateral generate_series(0, 24 * k.per_hour - 1) i
   cross join lateral (select abs(hashtext(k.kind || i)) % 100000 as h) h
   cross join lateral (
     select now() - interval '24 hours' * power(1 - (i + h.h % 100 / 120.0) / (24.0 * k.per_hour), 1.15) as at) a
), event(n, type, attempt, after_ms, data) as (
  values (1, 'enqueued', 0, 0, ''), (2, 'started', 1, 0, 'running'), (2, 'succeeded', 1, 1, 'done'),
         (2, 'failed', 1, 1, 'retried dead retrying'), (3, 'released', 1, 1200, 'retried dead'),
         (4, 'succeeded', 2, 1201, 'retried'), (4, 'failed', 2, 1201, 'dead'), (5, 'released', 2, 5400, 'dead'),
         (6, 'failed', 3, 5401, 'dead'), (7, 'buried', 3, 5401, 'dead')
)
insert into taskledger.event
       (xid, recorded_at, version, attempt, type, login_id, shard, kind, biz_id, actor, data, meta)
select tx.xid, r.at, e.n, e.attempt, e.type::taskledger.event_type, tx.login_id, t.h % 64, t.kind, t.biz_id,
       case when e.n = 1 then 'checkout' when e.type = 'released' then 'scheduler' else t.worker end,
       replace((case when e.n = 1 then json_build_object('order', 'o-' || 10400 + t.i, 'customer', 'c-' || t.h % 900,
                                                         'amount_cents', 990 + t.h % 20000,
                                                         'card_number', '4111111111111111')
             when e.type = 'succeeded' then json_build_object('duration_ms', t.ms,
                                                                    'result', json_build_object('ok', true))
             when e.type = 'released' then json_build_object('reason', 'retry')
             when e.type = 'failed' then json_build_object('duration_ms', t.ms,
               'error', json_build_object('type', t.error, 'message', format(t.message, 100 + t.h % 890),
                                          'stack', E'shop/handlers.(*Handler).Run\n\t/src/shop/run.go:118'),
               'retry_at', r.at + case t.fate when 'retrying' then interval '15 minutes' else interval '1 second' end)
             when e.type = 'buried' then json_build_object('reason', 'attempts used up', 'error', json_build_object(
               'type', t.error, 'message', format(t.message, 100 + t.h % 890))) end)::text, '" : ', '":')::json,
       (case when e.n = 1 and t.h % 9 = 0 then json_build_object('tags', array['vip'], 'traceparent',
               '00-' || md5(t.kind || t.i) || '-' || substr(md5(t.biz_id), 1, 16) || '-01') end)::json
  from task t
 cross join tx
  join event e on e.data = '' or t.fate = any (string_to_array(e.data, ' '))
 cross join lateral (
   select least(now(), t.at + interval '1 millisecond' *
     (t.wait_ms * least(e.n - 1, 1) + (e.after_ms % 10 > 0)::integer * t.ms + e.after_ms)) as at) r
 order by r.at, e.n;

-- Workers: two of this version, one that is lost, and one for exports whose kinds the others do not handle. Their
-- reports agree with the events of their tasks.
insert into taskledger.lease (name, holder, since, alive_until, term, detail)
select 'worker/' || w.id, w.id, now() + w.since, now() + w.until, w.term,
       json_build_object('kinds', w.kinds, 'shards', 'all', 'version', w.version, 'load', (
         select json_object_agg(k.kind, json_build_object('slots', 8, 'in_flight', n.running, 'running', n.running,
                  'per_minute', n.attempts / 5.0))
           from unnest(w.kinds) k(kind)
          cross join lateral (
            select count(*) filter (where e.type = 'started' and not exists (
                     select from taskledger.event o
                      where o.kind = e.kind and o.biz_id = e.biz_id and o.version > e.version)) as running,
                   count(*) filter (where e.type in ('succeeded', 'failed')
                     and e.recorded_at < date_trunc('minute', now())
                     and e.recorded_at >= date_trunc('minute', now()) - interval '5 minutes') as attempts
              from taskledger.event e
             where e.kind = k.kind and e.actor = w.id) n))
  from (values ('shop-1-k7f2', interval '-25 minutes', interval '1 hour', interval '1 day', 'v1.9.0',
                array['order.confirm', 'payment.capture', 'mail.send.receipt', 'mail.send.newsletter', 'stock.reserve',
                      'fraud.score', 'coupon.grant', 'loyalty.points']),
               ('shop-2-m3qx', interval '-24 minutes', interval '1 hour', interval '1 day', 'v1.9.0',
                array['order.confirm', 'payment.capture', 'webhook.deliver.partner',
                      'invoice.render', 'invoice.archive',
                      'search.index', 'stock.sync', 'shipment.label', 'image.resize']),
               ('shop-3-p9ad', interval '-1 hours', interval '1 hour', interval '1 day', 'v1.8.0',
                array['customer.export', 'report.daily', 'crm.sync']),
               ('shop-1-a001', interval '-2 days', interval '-25 minutes', interval '15 seconds', 'v1.8.0',
                array['order.confirm', 'payment.capture'])) w(id, since, until, term, version, kinds);

-- Timers of the tasks that wait for their retry.
insert into taskledger.timer (due_at, kind, biz_id, version, reason)
select now() + interval '4 minutes' + e.position % 300 * interval '1 second', e.kind, e.biz_id, e.version, 'retry'
  from taskledger.event e
 where e.type = 'failed' and e.version = 2 and e.recorded_at > now() - interval '12 minutes'
   and not exists (select from taskledger.event l where l.kind = e.kind and l.biz_id = e.biz_id and l.version = 3);`
