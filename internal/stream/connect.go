package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// writeTimeout bounds how long a server that reads nothing blocks the users of a connection, even while they stop.
const writeTimeout = 10 * time.Second

// Connect connects with the options that relay and workers need: it reconnects forever, and buffers no messages
// while the server is unavailable. A buffered message would be sent later, after its publisher has given it up and
// published it again. The given options come after these.
func Connect(url string, options ...nats.Option) (*nats.Conn, error) {
	ours := []nats.Option{nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(250 * time.Millisecond), nats.FlusherTimeout(writeTimeout)}
	nc, err := nats.Connect(url, append(ours, options...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

// FoundURL is the URL of a connection whose dialer finds the server in the database: the name does not exist.
const FoundURL = "nats://ledger.invalid:4222"

// Server returns the address of the server of nc for logs, without credentials: the URL that the operator has given, or
// the address that the dialer has found.
func Server(nc *nats.Conn) string {
	if url := nc.ConnectedUrlRedacted(); url != FoundURL {
		return url
	}
	return nc.ConnectedAddr()
}

// WithRefusal explains the error of a worker's request without an answer: it adds why the server refused the user, if
// it did. The server does not answer a refused request.
func WithRefusal(nc *nats.Conn, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) &&
		!errors.Is(err, nats.ErrDisconnected) && !errors.Is(err, nats.ErrConnectionClosed) {
		return err
	}
	last := nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) && !errors.Is(last, nats.ErrAuthorization) {
		return err
	}
	return fmt.Errorf("%w: %w: connect with the key of the user worker of taskledger nats-config", err, last)
}

// flushTimeout bounds the time that a process waits for its last messages.
const flushTimeout = 2 * time.Second

// Flush waits until the server has received every message published on nc, for at most two seconds. It does
// not wait while nc is disconnected: the messages published then are lost.
func Flush(nc *nats.Conn) {
	if nc.IsConnected() {
		_ = nc.FlushTimeout(flushTimeout)
	}
}
