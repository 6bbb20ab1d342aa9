package broker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/reserve"
)

// serverLog is the log of a server. It is safe for concurrent use.
type serverLog struct {
	mu   sync.Mutex
	text bytes.Buffer
	to   io.Writer
}

func newServerLog(t *testing.T) *serverLog { return &serverLog{to: t.Output()} }

func (l *serverLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(p)
	return l.text.Write(p)
}

// awaitLog waits until the log has a text.
func (d *database) awaitLog(l *serverLog, text string) {
	d.t.Helper()
	d.await("the log", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !strings.Contains(l.text.String(), text) {
			return fmt.Errorf("it has no %q", text)
		}
		return nil
	})
}

// take listens on an address until the listener is closed.
func take(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A port that is taken is reported with the cure, and the server runs when it is free.
func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	d, log := newDatabase(t), newServerLog(t)
	l := take(t, "127.0.0.1:0")
	address := l.Addr().String()
	d.run(broker.Config{Listen: address, Logger: log.logger()})
	d.awaitLog(log, "another process listens on "+address+": address already in use: "+
		"end that process, or name another address with --nats-listen")
	if _, err := natsclient.Find(t.Context(), d.db, natsconfig.Relay); err == nil {
		t.Error("a server is found")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if f := d.found("worker", natsconfig.Worker); f.Address != address {
		t.Errorf("found %s", f.Address)
	}
}

// An address that is not one of this machine is reported with the cure.
func TestAddressOfAnotherMachine(t *testing.T) {
	t.Parallel()
	d, log := newDatabase(t), newServerLog(t)
	d.run(broker.Config{Listen: "192.0.2.1:4222", Logger: log.logger()})
	d.awaitLog(log, "name an address of this machine with --nats-listen")
}

// A server whose port of the last start is taken takes another one, reports that, and is found there.
func TestLastPortIsTaken(t *testing.T) {
	t.Parallel()
	d, log, dir := newDatabase(t), newServerLog(t), t.TempDir()
	stop := d.run(broker.Config{Dir: dir})
	last := d.found("worker", natsconfig.Worker).Address
	nc := d.connect("relay", natsconfig.Relay)
	stop()
	take(t, last)
	d.run(broker.Config{Dir: dir, Logger: log.logger()})
	d.awaitLog(log, "another process listens on the address of the last start")
	if f := d.found("worker", natsconfig.Worker); f.Address == last {
		t.Errorf("found %s, which is taken", f.Address)
	}
	d.answers(nc) // it has followed the server
}

// A member of a cluster whose address for its peers is taken reports that, and joins when it is free. A new cluster
// stores nothing before all its members have joined.
func TestPortForPeersIsTaken(t *testing.T) {
	t.Parallel()
	d, log, peers := newDatabase(t), newServerLog(t), peersOn(t)
	l := take(t, peers[2])
	for i, self := range peers {
		c := broker.Config{Peers: peers, ClusterListen: self}
		if i == 2 {
			c.Logger = log.logger()
		}
		d.run(c)
	}
	d.awaitLog(log, "another process listens on "+peers[2]+": address already in use: "+
		"end that process, or name another address for this one in the --peers of all processes")
	d.awaitMembers(2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d.awaitMembers(3)
	d.connect("worker", natsconfig.Worker)
}

// A member of a cluster whose directory another member has returns an error with the process that has it, and runs once
// that has ended.
func TestDirectoryOfAnotherMember(t *testing.T) {
	t.Parallel()
	d, peers, dir := newDatabase(t), peersOn(t), t.TempDir()
	stop := d.run(broker.Config{Peers: peers, ClusterListen: peers[0], Dir: dir})
	d.await("the lock of the directory", func() error {
		_, err := os.Stat(filepath.Join(dir, "port"))
		return err
	})
	second, err := broker.New(broker.Config{DB: d.db, Peers: peers, ClusterListen: peers[1], Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, reserve.ErrHeld) ||
		!strings.Contains(err.Error(), fmt.Sprintf("locked by process %d", os.Getpid())) {
		t.Errorf("%v, want %v with the process", err, reserve.ErrHeld)
	}
	stop()
	log := newServerLog(t)
	d.run(broker.Config{Peers: peers, ClusterListen: peers[1], Dir: dir, Logger: log.logger()})
	d.awaitLog(log, "runs the NATS server of this database")
}
