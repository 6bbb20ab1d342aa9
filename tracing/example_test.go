package tracing_test

import (
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/tracing"
	"github.com/taskledger/taskledger/workers"
)

// A program with an SDK of OpenTelemetry gives the hooks to its kinds and its pool.
func ExampleNew() {
	spans := tracing.New(nil)
	kind := ledger.MustKind[string]("coupon.send", spans.Enqueue())
	pool := workers.Config{Hooks: []workers.Hook{spans.Workers()}}
	config := &workers.KindConfig{Middleware: []workers.Middleware{spans.Handler()}}
	_, _, _ = kind, pool, config
}
