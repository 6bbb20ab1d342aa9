package taskledger_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// patience bounds what normally takes milliseconds.
const patience = time.Minute

func TestOpenProducer(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, "producer")
	address := owner.Config().ConnString()
	for _, tt := range []struct {
		name    string
		address string
		conns   int32
	}{
		{name: "default", address: address, conns: taskledger.ProducerConns},
		{name: "of the address", address: withParameter(t, address, "pool_max_conns", "3"), conns: 3},
	} {
		client, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: tt.address, Name: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		var name, encoding string
		if err := client.DB.QueryRow(t.Context(), `
			select current_setting('application_name'), current_setting('client_encoding')`).
			Scan(&name, &encoding); err != nil {
			t.Fatal(err)
		}
		if have := client.DB.Config().MaxConns; have != tt.conns || client.NATS != nil || name != "shop" ||
			encoding != "UTF8" {
			t.Errorf("%s: %d connections, want %d; %q %q", tt.name, have, tt.conns, name, encoding)
		}
		client.Close()
	}
}

// A worker without a NATS server logs the cause and the cure.
func TestOpenWithoutNATS(t *testing.T) {
	t.Parallel()
	lines := make(logLines, 100)
	client, err := taskledger.Open(t.Context(), taskledger.Options{
		DatabaseURL: ledgertest.Pool(t, "worker").Config().ConnString(), Slots: 1,
		Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const want = "no process runs a NATS server for this database: start taskledger serve"
	select {
	case line := <-lines:
		if !strings.Contains(line, want) {
			t.Errorf("logged %s, want %s", line, want)
		}
	case <-time.After(patience):
		t.Error("nothing was logged")
	}
}

// A worker whose database names a NATS server at an address that is dead logs the address and the cure, and connects
// when the database names a living one.
func TestOpenWithUnreachableNATS(t *testing.T) {
	t.Parallel()
	db, dir := ledgertest.Pool(t, "relay"), t.TempDir()
	run := func(advertise string) (stop func()) {
		server, err := broker.New(broker.Config{DB: db, Dir: dir, Advertise: advertise})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx) }()
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(stop)
		return stop
	}
	stop := run("127.0.0.1:1")
	if err := natsclient.Await(t.Context(), db, natsconfig.Relay); err != nil {
		t.Fatal(err)
	}
	lines := make(logLines, 100)
	client, err := taskledger.Open(t.Context(), taskledger.Options{
		DatabaseURL: ledgertest.URLAs(t, db.Config().ConnString(), "worker"), Slots: 1,
		Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	producerLines := make(logLines, 100)
	producer, err := taskledger.Open(t.Context(), taskledger.Options{
		DatabaseURL: ledgertest.URLAs(t, db.Config().ConnString(), "producer"), Slots: 1,
		Logger: slog.New(slog.NewTextHandler(producerLines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	select {
	case line := <-producerLines:
		if !strings.Contains(line, "grant the login of the worker the role worker of this database, or set NATS_URL") {
			t.Errorf("logged %s without the cure", line)
		}
	case <-time.After(patience):
		t.Error("nothing was logged")
	}
	const want = "the NATS server of this database cannot be reached at 127.0.0.1:1: no process listens there: " +
		"check that this machine reaches it; serve --advertise names its address"
	select {
	case line := <-lines:
		if !strings.Contains(line, want) {
			t.Errorf("logged %s, want %s", line, want)
		}
	case <-time.After(patience):
		t.Error("nothing was logged")
	}
	stop()
	run("")
	for begun := time.Now(); !client.NATS.IsConnected(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatal("the worker does not connect")
		}
	}
}

// logLines receives the lines of a log.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

func withParameter(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestOpenRefuses(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	t.Setenv("NATS_URL", "")
	for _, tt := range []struct {
		name    string
		options taskledger.Options
		want    string
	}{
		{
			name: "no address",
			want: "invalid DatabaseURL: is required: set it, or the environment variable DATABASE_URL",
		},
		{name: "slots", options: taskledger.Options{Slots: -1}, want: `invalid Slots "-1": must be at least 0`},
		{name: "address", options: taskledger.Options{DatabaseURL: "postgres://u:s3cret%zz@h/d"},
			want: "must be an address of PostgreSQL"},
	} {
		_, err := taskledger.Open(t.Context(), tt.options)
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	_, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: "postgres://127.0.0.1:1/d"})
	if !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
