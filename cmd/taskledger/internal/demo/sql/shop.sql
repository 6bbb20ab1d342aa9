-- The shop's tables. coupon.order_no has no unique constraint on purpose: only the ledger prevents a
-- second coupon. No parameters.
create schema shop;
create table shop."order" (
  order_no  text primary key,
  customer  text not null,
  placed_at timestamptz not null default clock_timestamp());
create table shop.coupon (
  id       bigint generated always as identity primary key,
  order_no text not null,
  worker   text not null,
  attempt  integer not null,
  sent_at  timestamptz not null default clock_timestamp());
create table shop.till (
  firing  text not null,
  coupons bigint not null)
