package natsclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

const publishTimeout = 10 * time.Second

// Publish publishes a message, and returns once the server has it.
func Publish(ctx context.Context, nc *nats.Conn, subject string, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := nc.Publish(subject, text); err != nil {
		return err
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		return err
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: the NATS user needs the right to publish to %s", err, subject)
	}
	return nil
}

// CheckpointPublisher returns a function that publishes checkpoints of the seal below the prefix of a connection, as
// [Publish].
func CheckpointPublisher(nc *nats.Conn) func(ctx context.Context, subject string, text []byte) error {
	return func(ctx context.Context, subject string, text []byte) error {
		return Publish(ctx, nc, stream.PrefixOf(nc).CheckpointSubject(subject), text)
	}
}
