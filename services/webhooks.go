package services

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/workers"
)

// SendWebhooks sends events to the receivers of a file until ctx is done, and then returns nil, as the command
// taskledger serve webhooks does. file is the file as JSON, see docs/webhooks.md. The login of db needs the roles
// producer, subscriber and worker, and nc the rights of a worker. A nil log means [slog.Default].
//
// It retries through outages. It returns an error that names every fault if the file is invalid, and the errors of
// [workers.Pool.Run].
func SendWebhooks(ctx context.Context, db *pgxpool.Pool, nc *nats.Conn, file []byte, log *slog.Logger) error {
	f, err := webhooks.Parse(file)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	s, err := webhooks.New(webhooks.Config{DB: db, NATS: nc, File: f, Logger: log})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// PushTasks sends the tasks of the kinds in a file to HTTP servers until ctx is done and running requests have ended,
// and then returns nil. file is the file of taskledger serve --push as JSON, see docs/webhooks.md. work gives the
// tasks; with the gateway of the HTTP API, a server can end a task that it has accepted. db is the primary. A nil log
// means [slog.Default].
//
// It retries through outages. It returns an error that names every fault if the file is invalid.
func PushTasks(
	ctx context.Context, db *pgxpool.Pool, work *workers.Gateway, file []byte, log *slog.Logger,
) error {
	f, err := webhooks.ParsePush(file)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	p, err := webhooks.NewPusher(webhooks.PusherConfig{DB: db, Work: work, File: f, Logger: log})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}
