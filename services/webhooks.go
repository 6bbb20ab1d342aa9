package services

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger/feed"
)

// WebhookOptions are the options of [SendWebhooks]. Nil means all defaults.
type WebhookOptions struct {
	// Archive contains the events of archived tasks, see [Archive]. Default: receivers go on without them, and a
	// delivery whose event was archived meanwhile is buried with the place of its events.
	Archive feed.Archive
	// Logger logs outages and receivers that get no events. Default: [slog.Default].
	Logger *slog.Logger
}

// SendWebhooks sends events to the receivers of a file until ctx is done, and then returns nil, as the command
// taskledger serve webhooks does. file is the file as JSON, see docs/webhooks.md. The login of db needs the roles
// producer, subscriber and worker, and nc the rights of a worker.
//
// It retries through outages. It returns an error that names every fault if the file is invalid, and the errors of
// [workers.Pool.Run].
func SendWebhooks(ctx context.Context, db *pgxpool.Pool, nc *nats.Conn, file []byte, o *WebhookOptions) error {
	f, err := webhooks.Parse(file)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	if o == nil {
		o = &WebhookOptions{}
	}
	s, err := webhooks.New(webhooks.Config{DB: db, NATS: nc, File: f, Archive: o.Archive, Logger: o.Logger})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
