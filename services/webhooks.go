package services

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/webhooks"
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
