-- Tokens by name and time.
-- $1 1: tokens that are neither revoked nor expired nor links, and all tokens without a secret; 0: all.
-- Locks nothing. Reads the whole small table.
select t.id, t.name, t.hash, t.role, t.kinds, coalesce(t.rate, 0), (extract(epoch from t.created_at) * 1e6)::bigint,
       t.actor, (extract(epoch from t.expires_at) * 1e6)::bigint, (extract(epoch from t.revoked_at) * 1e6)::bigint,
       coalesce(t.revoked_by, ''), (extract(epoch from t.link_until) * 1e6)::bigint,
       (extract(epoch from t.redeemed_at) * 1e6)::bigint
  from taskledger.token t
 where $1::bigint = 0 or t.hash is null
    or t.revoked_at is null and (t.expires_at is null or t.expires_at > clock_timestamp())
       and (t.link_until is null or t.redeemed_at is not null)
 order by t.name, t.created_at, t.id
