// Package demo plays a shop on taskledger, makes trouble while it runs, and proves by SQL that
// every order got its coupon exactly once.
//
// The parent process owns the servers, places the orders and runs the projector and the
// scheduler. The relay and the workers are child processes of the same binary, so that they can be
// killed with SIGKILL at named places (package internal/fault) and frozen with SIGSTOP. The coupon
// table has no unique constraint: a coupon sent twice would be there twice.
//
// Two of a hundred coupons are refused twice and sent at the third attempt; one is refused for
// ever, so that its task ends dead.
//
// A periodic task counts the till every second. Whatever is killed, no second is left out and
// none is counted twice.
package demo
