// Package demo runs a shop on taskledger, makes trouble meanwhile, and proves by SQL that each order's coupon was sent
// exactly once.
//
// The parent process owns the servers, places the orders and runs the projector and the scheduler.
// The relay and the workers are child processes of the same binary. The parent kills them with
// SIGKILL at named crash points (package internal/fault) and freezes one with SIGSTOP.
//
// The coupon table has no unique constraint: a coupon that is sent twice appears in two rows.
//
// The shop's partner refuses two of a hundred coupons twice, so that the third attempt sends them.
// It always refuses one coupon, whose task ends dead.
//
// A periodic task counts the till every second. No trouble makes it skip a second or count one twice.
package demo
