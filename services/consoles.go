package services

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/taskledger/taskledger/internal/console"
)

// Consoles is the web console over several ledgers: at its base a page with the state of each, and the console of each
// at ledgers/NAME/ below it. A token of one ledger admits to no other one, and the page shows a caller only the ledgers
// that admit the caller. It does not serve the HTTP API.
//
// It is safe for concurrent use. Drain it before its server shuts down, as a [Handler].
type Consoles struct {
	handlers map[string]*Handler
	console  *console.Ledgers
}

// NewConsoles returns the console over the ledgers with these names: 1 to 64 letters, digits, dots, hyphens and
// underscores. base is the path where it is mounted; it begins and ends with a slash. The Base of each [HandlerConfig]
// is not used.
//
// No database need be available. The page waits at most 2 s for the states of the ledgers, which it reads at the same
// time. It returns the errors of [HandlerConfig.Validate], with the names of their ledgers.
func NewConsoles(base string, ledgers map[string]HandlerConfig) (*Consoles, error) {
	c := &Consoles{handlers: make(map[string]*Handler)}
	of := make(map[string]*console.Handler)
	var faults []error
	for name, config := range ledgers {
		if err := console.CheckLedgerName(name); err != nil {
			faults = append(faults, fmt.Errorf("services: %w", err))
			continue
		}
		config.Base = console.LedgerBase(base, name)
		h, err := NewHandler(config)
		if err != nil {
			faults = append(faults, fmt.Errorf("ledger %s: %w", name, err))
			continue
		}
		c.handlers[name], of[name] = h, h.console
	}
	if err := errors.Join(faults...); err != nil {
		c.Drain()
		return nil, err
	}
	var err error
	if c.console, err = console.NewLedgers(base, of); err != nil {
		c.Drain()
		return nil, fmt.Errorf("services: %w", err)
	}
	return c, nil
}

// ServeHTTP answers a request.
func (c *Consoles) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.console.ServeHTTP(w, r) }

// Drain is [Handler.Drain] of all ledgers, at the same time.
func (c *Consoles) Drain() {
	var draining sync.WaitGroup
	for _, h := range c.handlers {
		draining.Go(h.Drain)
	}
	draining.Wait()
}
