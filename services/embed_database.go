package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgfetch"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/migrations"
)

// startEvery is the time between two attempts to start PostgreSQL while another process starts it.
const startEvery = 100 * time.Millisecond

// ownDatabase starts PostgreSQL in the data directory and sets the address. It returns nil if another process has
// started it there.
func (o *EmbedOptions) ownDatabase(ctx context.Context) (*embedded.Server, error) {
	for {
		if other, err := embedded.Attach(o.Dir); err == nil {
			if other.NATSURLs != nil {
				return nil, fmt.Errorf("services: taskledger demo runs in %s: "+
					"stop it, set DATABASE_URL, or set another Dir", o.Dir)
			}
			o.Client.DatabaseURL = other.DatabaseURL
			return nil, nil
		}
		server, err := embedded.Start(ctx, embedded.Config{Dir: o.Dir, Prepare: migrations.Up, Fetch: o.fetch})
		if err == nil {
			o.Client.DatabaseURL = server.DatabaseURL
			return server, nil
		}
		if !errors.Is(err, reserve.ErrHeld) {
			return nil, fmt.Errorf("services: DATABASE_URL is not set, and PostgreSQL cannot be started in %s: %w",
				o.Dir, err)
		}
		if loop.Sleep(ctx, startEvery) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// fetch returns the directory of fetched binaries, where PostgreSQL is not installed.
func (o *EmbedOptions) fetch(ctx context.Context) (string, error) {
	return pgfetch.Binaries(ctx, pgfetch.Config{Begin: func(n pgfetch.Notice) {
		o.Client.Logger.WarnContext(ctx, "PostgreSQL is not installed; TASKLEDGER_NO_FETCH=1 refuses to fetch it",
			"server", n.Registry)
	}})
}

// stopWith stops a program when its PostgreSQL server ends, unless ctx is done before.
func stopWith(ctx context.Context, postgres *embedded.Server, stop context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
	case <-postgres.Lost():
		stop(&stoppedError{errors.New("services: PostgreSQL has ended: see postgres/log in the data directory")})
	}
}
