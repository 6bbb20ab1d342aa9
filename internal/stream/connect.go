package stream

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Connect connects as relay and workers need it: for ever, and without a buffer for the time
// the server is away. A message in such a buffer would be sent later, behind the back of a
// publisher that has long given it up and published it again. The options come after ours.
func Connect(url string, options ...nats.Option) (*nats.Conn, error) {
	ours := []nats.Option{nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(250 * time.Millisecond)}
	nc, err := nats.Connect(url, append(ours, options...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}
