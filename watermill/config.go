package watermill

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// Config configures a kind. Nil means all defaults.
type Config struct {
	// Kind holds the settings that every kind has. Its own middleware is outside of Middleware.
	Kind workers.KindConfig
	// Middleware is called around each attempt, inside its transaction; the first one is the outermost. If it returns
	// an error or a nack, the attempt fails and is rolled back. It cannot ack. docs/watermill.md lists suitable
	// middleware. Default: disabled.
	Middleware []message.HandlerMiddleware
	// Produces is the kind of the tasks that returned messages become. They are enqueued in the
	// attempt's transaction, so the kind must be ExactlyOnce. Default: returning messages fails the
	// attempt.
	Produces ledger.Kind
}

// validate returns an error if the kind cannot produce.
func (c Config) validate() error {
	if c.Produces == "" {
		return nil
	}
	if c.Kind.Guarantee != "" && c.Kind.Guarantee != workers.ExactlyOnce {
		return errors.New("Produces must be empty unless the kind is ExactlyOnce")
	}
	if err := c.Produces.Validate(); err != nil {
		return fmt.Errorf("invalid Produces: %w", err)
	}
	return nil
}

// KindConfig returns the configuration of a kind with Watermill's middleware around its handler, for [workers.Handle].
// It returns an error if a kind with this guarantee cannot produce.
func (c Config) KindConfig() (*workers.KindConfig, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("watermill: %w", err)
	}
	if len(c.Middleware) > 0 {
		c.Kind.Middleware = append(slices.Clone(c.Kind.Middleware), c.around)
	}
	return &c.Kind, nil
}

// invalid returns the error of a kind that cannot be registered.
func invalid(kind ledger.Kind, err error) error {
	return fmt.Errorf("watermill: register kind %q: %w", kind, err)
}
