package health_test

import (
	"context"
	"fmt"
	"log"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A probe prints the conditions that hold. This ledger has no services.
func ExampleRead() {
	pool, done := ledgertest.Example("reader")
	defer done()

	r, err := health.Read(context.Background(), health.Config{DB: pool})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range r.Degraded {
		fmt.Printf("%s: %s\n  cure: %s\n", c.Name, c.Text, c.Cure)
	}
	// Output:
	// relay_stopped: no relay is running
	//   cure: start a relay: taskledger serve
	// dispatcher_stopped: no dispatcher is running
	//   cure: start a dispatcher: taskledger serve; if one is running, its log shows the reason
}
