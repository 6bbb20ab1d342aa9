package taskledger

import (
	"net/http"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/probe"
	"github.com/taskledger/taskledger/ledger"
)

// NewProbe returns a handler of /healthz and /readyz for a program with workers: it is ready while db and nc answer. A
// program without nc examines db alone. metrics serves /metrics; nil: not found. The handler has no authentication, and
// its bodies contain neither args nor secrets. It panics if db is nil.
func NewProbe(db ledger.DB, nc *nats.Conn, metrics http.Handler) http.Handler {
	h, err := probe.New(probe.Config{DB: db, NATS: nc, Metrics: metrics})
	if err != nil {
		panic(err)
	}
	return h
}
