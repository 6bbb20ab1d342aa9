package systemtest_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
)

// A worker with the key of another user logs why the server refuses it, and the cure.
func TestWorkerWithAWrongKeyLogsTheCure(t *testing.T) {
	g := newGuarded(t)
	g.startServices()
	for _, user := range []string{"operator", "relay", "mails"} {
		t.Run(user, func(t *testing.T) {
			logged := make(chan string, 1)
			options := &slog.HandlerOptions{Level: slog.LevelWarn}
			log := slog.New(slog.NewTextHandler(warnings(logged), options))
			build := func(db *pgxpool.Pool, nc *nats.Conn, _ *slog.Logger) (runner, error) { return sends(db, nc, log) }
			g.startOn("with the key of "+user, g.connect(user), build)
			for end := time.After(patience); ; {
				select {
				case line := <-logged:
					if strings.Contains(line, "cannot receive messages") &&
						strings.Contains(strings.ToLower(line), "permissions violation") &&
						strings.Contains(line, "key of the user worker of taskledger nats-config") {
						return
					}
					t.Log(line)
				case <-end:
					t.Fatal("the cure is not logged")
				}
			}
		})
	}
}

// warnings receives the lines of a logger.
type warnings chan string

func (w warnings) Write(line []byte) (int, error) {
	select {
	case w <- string(line):
	default:
	}
	return len(line), nil
}
