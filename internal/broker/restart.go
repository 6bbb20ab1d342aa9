package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/taskledger/taskledger/outbox"
)

// Restartable is a NATS server of this process: a [Server], or one of package natsserver.
type Restartable interface {
	// CheckRoom returns an error if the server's disk is full.
	CheckRoom() error
	Restart() error
}

// restart is the state of a hook of the relay. After a full disk, nats-server stores nothing until it is restarted. The
// hook restarts a server of this process when JetStream has stored nothing for a while and the disk has room. It is
// safe for concurrent use.
type restart struct {
	// Constant.
	server Restartable
	log    *slog.Logger
	after  time.Duration // how long JetStream must have stored nothing

	mu        sync.Mutex // guards the fields below
	since     time.Time  // of the first failure since a page was stored, or zero
	notBefore time.Time  // of the next restart
	pause     time.Duration
	isRunning bool
}

// Pauses between two restarts that did not help: the cause may not be the disk.
const (
	restartAfter    = 3 * time.Second
	minRestartPause = 10 * time.Second
	maxRestartPause = 10 * time.Minute
)

// NewRestart returns a hook of the relay that restarts a NATS server after its disk was full.
func NewRestart(server Restartable, log *slog.Logger) outbox.Hook {
	r := newRestart(server, log)
	return outbox.Hook{PageAdvanced: r.pageAdvanced, RelayFailed: r.relayFailed}
}

func newRestart(server Restartable, log *slog.Logger) *restart {
	return &restart{server: server, log: log, after: restartAfter, pause: minRestartPause}
}

// pageAdvanced notes that JetStream stores messages.
func (r *restart) pageAdvanced(context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.pause = time.Time{}, minRestartPause
}

// relayFailed restarts the server in a goroutine if it must.
func (r *restart) relayFailed(_ context.Context, err error) {
	var failure *outbox.StoreError
	if !errors.As(err, &failure) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	if r.isRunning || now.Sub(r.since) < r.after || now.Before(r.notBefore) {
		return
	}
	r.isRunning = true
	go r.run()
}

func (r *restart) run() {
	err := r.server.CheckRoom()
	if err != nil {
		r.log.Warn("JetStream stores no messages, and its disk is full", "error", err)
	} else {
		r.log.Warn("JetStream stores no messages, and its disk has room; restarting the NATS server of this process")
		if err := r.server.Restart(); err != nil {
			r.log.Error("cannot restart the NATS server", "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isRunning = false
	if err == nil {
		r.notBefore = time.Now().Add(r.pause)
		r.pause = min(2*r.pause, maxRestartPause)
	}
}
