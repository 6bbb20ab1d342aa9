-- The live workers that divide the shards of each kind.
-- $1 kinds (text array literal). Locks nothing. Reads the whole small table.
select k.kind, l.holder
  from taskledger.lease l
 cross join lateral json_array_elements_text(l.detail->'kinds') k(kind)
 where l.name like 'shards/%' and l.alive_until > clock_timestamp() and k.kind = any ($1::text::text[])
