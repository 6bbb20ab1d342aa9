-- Removes timers that can no longer have an effect, see taskledger_internal.remove_obsolete_timers.
-- $1 moment, $2 kind and $3 biz_id after which to read; $4 number of timers to read.
-- Returns how many timers were read and removed, and due_at, kind and biz_id of the last one read, or nulls.
-- Locks the timers that it removes. Index: primary keys.
select o.timers, o.removed, (extract(epoch from o.last_due_at) * 1e6)::bigint,
       coalesce(o.last_kind, ''), coalesce(o.last_biz_id, '')
  from taskledger_internal.remove_obsolete_timers($1::text::timestamptz, $2::text, $3::text, $4::integer) o
