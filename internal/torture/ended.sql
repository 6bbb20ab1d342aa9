-- Whether every task has ended, every event is published and the projector has applied it. Locks nothing. Indexes: the
-- primary key of event.
select not exists (
         select from (select distinct on (e.kind, e.biz_id) e.type::text as type
                        from taskledger.event e
                       order by e.kind, e.biz_id, e.version desc) head
          where head.type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded'))
   and not exists (select from taskledger.outbox)
   and (select l.events = 0 from taskledger_internal.feed_lag('projector', 1) l)
