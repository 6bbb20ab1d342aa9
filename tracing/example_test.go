package tracing_test

import (
	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/tracing"
)

// A program with an SDK of OpenTelemetry gives it to its kinds and its client.
func ExampleNew() {
	spans := tracing.New(nil)
	kind := ledger.MustKind[string]("coupon.send", spans.Enqueue())
	client := taskledger.Options{Tracing: spans}
	_, _ = kind, client
}
