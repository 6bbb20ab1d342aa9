// Package conformance holds Watermill's own test suite for our two Pub/Subs, and tests of Watermill's
// Router and CQRS on them. It has no other code, because outbox and workers do not import each other.
package conformance_test

import (
	"testing"

	"github.com/taskledger/taskledger/watermill/internal/watermilltest"
)

// bundle is a kit with the two Pub/Subs.
type bundle struct{ *watermilltest.Kit }

func newBundle(t testing.TB) *bundle { return &bundle{watermilltest.Start(t)} }
