-- The HTTP API: its callers.
-- Owner: package api.
--
--   token  written by operators (taskledger create token, revoke token), read by the API
--
-- No other package reads it.

-- +goose Up

-- A caller is identified by a secret, stored only as its SHA-256, or, if hash is null, by the name that a client
-- certificate or a trusted proxy gives. The secret has 130 random bits, so a fast hash is as safe as a slow one.
create table taskledger.token (
  id         text collate "C" primary key,  -- the part of the token that is no secret
  name       text collate "C" not null,     -- of the caller: the actor of its events
  hash       bytea,
  role       text not null,
  kinds      text[] not null default '{}',  -- of the tasks that it may read and change; {}: all
  rate       integer,                       -- requests a second; null: the default of the API
  created_at timestamptz not null default clock_timestamp(),
  actor      text not null default session_user,
  expires_at timestamptz,
  revoked_at timestamptz,
  revoked_by text,
  check (id ~ '^[a-z0-9]{1,32}$'),
  check (name ~ '^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$'),
  check (octet_length(hash) = 32),
  check (role in ('viewer', 'producer', 'operator', 'admin')),
  check (cardinality(kinds) <= 1000),
  check (rate > 0),
  check (created_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (expires_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (revoked_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'));

-- One caller without a secret for each name.
create unique index token_name on taskledger.token (name) where hash is null and revoked_at is null;

comment on table taskledger.token is 'The callers of the HTTP API: the hashes of their tokens, their roles and kinds.';
