package natsclient

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// Logging returns options that log when a connection is made, lost and restored, and why it fails. reason returns the
// text of an error. A restored connection has the level of a lost one: otherwise a log of warnings shows no end of it.
func Logging(log *slog.Logger, reason func(error) string) []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(nc *nats.Conn) { log.Info("connected", "server", stream.Server(nc)) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Warn("reconnected", "server", stream.Server(nc)) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("error", "error", err) }),
		nats.ReconnectErrHandler(throttled(log, reason)),
	}
}

// throttled logs failed attempts to reconnect at intervals, since there are several a second.
func throttled(log *slog.Logger, reason func(error) string) nats.ConnErrHandler {
	var last time.Time
	return func(_ *nats.Conn, err error) {
		if now := time.Now(); now.Sub(last) > 30*time.Second {
			last = now
			log.Warn("cannot connect", "error", reason(err))
		}
	}
}
