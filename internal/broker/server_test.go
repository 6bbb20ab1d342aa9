package broker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// patience bounds what normally takes milliseconds.
const patience = time.Minute

// database is a database without a NATS server.
type database struct {
	t  *testing.T
	db *pgxpool.Pool // as the relay
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	return &database{t, ledgertest.Pool(t, "relay")}
}

// run runs a server until stop is called, or the test ends.
func (d *database) run(c broker.Config) (stop func()) {
	d.t.Helper()
	c.DB = d.db
	if c.Dir == "" {
		c.Dir = d.t.TempDir()
	}
	if c.TTL == 0 {
		c.TTL = 3 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(d.t.Output(), nil))
	}
	s, err := broker.New(c)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	isStopped := false
	stop = func() {
		if isStopped {
			return
		}
		isStopped = true
		cancel()
		if err := <-ended; err != nil {
			d.t.Error(err)
		}
	}
	d.t.Cleanup(stop)
	return stop
}

// found waits until the server is found as a role, and returns it.
func (d *database) found(role, user string) (f natsclient.Server) {
	d.t.Helper()
	db := ledgertest.As(d.t, d.db, role)
	d.await("the server to be found", func() (err error) {
		f, err = natsclient.Find(d.t.Context(), db, user)
		return err
	})
	return f
}

func (d *database) await(what string, ok func() error) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("waited %s for %s: %v", patience, what, err)
		}
	}
}

// connect connects as a role, and checks that the server answers: JetStream, if the user has a right to it.
func (d *database) connect(role, user string) *nats.Conn {
	d.t.Helper()
	nc, err := natsclient.Connect(ledgertest.As(d.t, d.db, role), user, nats.RetryOnFailedConnect(true))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	if user != natsconfig.Worker {
		d.answers(nc)
		return nc
	}
	d.await("the server", func() error {
		_, err := nc.RTT()
		return err
	})
	return nc
}

// answers waits until JetStream answers a client.
func (d *database) answers(nc *nats.Conn) {
	d.t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		d.t.Fatal(err)
	}
	d.await("JetStream", func() error {
		ctx, cancel := context.WithTimeout(d.t.Context(), time.Second)
		defer cancel()
		if _, err := js.Stream(ctx, "LEDGER"); !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("the server answers: %w", err)
		}
		return nil
	})
}

// Each role finds the server with its own user, and no other password.
func TestServerIsFound(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	worker := ledgertest.As(t, d.db, "worker")
	var missing *natsclient.NotFoundError
	_, err := natsclient.Find(t.Context(), worker, natsconfig.Worker)
	if !errors.As(err, &missing) || missing.Cure == "" {
		t.Errorf("found before a server runs: %v", err)
	}
	dir := t.TempDir()
	stop := d.run(broker.Config{Dir: dir})
	first := d.found("worker", natsconfig.Worker)
	d.connect("worker", natsconfig.Worker)
	d.connect("operator", natsconfig.Operator)
	d.connect("relay", natsconfig.Relay)
	for role, user := range map[string]string{
		"worker": natsconfig.Operator, "operator": natsconfig.Worker, "reader": natsconfig.Operator,
		"producer": natsconfig.Subscriber, "subscriber": natsconfig.Waiter,
	} {
		_, err := natsclient.Find(t.Context(), ledgertest.As(t, d.db, role), user)
		var refused *natsclient.NoUserError
		if !errors.As(err, &refused) {
			t.Errorf("%s reads the password of %s: %v", role, user, err)
		}
		users, err := natsclient.Users(t.Context(), ledgertest.As(t, d.db, role))
		if role == "reader" && !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s reads passwords: %v", role, err)
		}
		for name := range users {
			if natsclient.RoleOf(name) != role {
				t.Errorf("%s reads the password of %s", role, name)
			}
		}
	}
	stop()
	if _, err := natsclient.Find(t.Context(), worker, natsconfig.Worker); !errors.As(err, &missing) {
		t.Errorf("found after the server has ended: %v", err)
	}
	d.run(broker.Config{Dir: dir})
	if again := d.found("worker", natsconfig.Worker); again != first {
		t.Errorf("after a restart %s, password as before %t; want %s",
			again.Address, again.Password == first.Password, first.Address)
	}
}

// Each user of NATS has a password of its own, which logins with its role find, and the rights of its role alone.
func TestUserForEachRole(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.run(broker.Config{})
	if nc, err := nats.Connect("nats://" + d.found("worker", natsconfig.Worker).Address); !errors.Is(err,
		nats.ErrAuthorization) {
		t.Errorf("without a user: got %v, %v, want ErrAuthorization", nc, err)
	}
	passwords := make(map[string]string) // the user of each password
	for user, canPublish := range map[string]bool{
		natsconfig.Admin: true, natsconfig.Relay: true, natsconfig.Worker: false, natsconfig.Operator: false,
		natsconfig.Subscriber: false, natsconfig.Served: false, natsconfig.ServerOf(natsconfig.Served): false,
		natsconfig.Waiter: true, // in an account from which no other one imports
	} {
		found := d.found(natsclient.RoleOf(user), user)
		if other, ok := passwords[found.Password]; ok {
			t.Errorf("%s has the password of %s", user, other)
		}
		passwords[found.Password] = user
		nc, err := nats.Connect(found.URL())
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		if err := errors.Join(nc.Publish("ledger.0.succeeded.a", nil), nc.Flush()); err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		// The server answers in order: the refusal comes before the flush ends.
		if isRefused := errors.Is(nc.LastError(), nats.ErrPermissionViolation); isRefused == canPublish {
			t.Errorf("%s can publish an event: %v, want %v", user, !isRefused, canPublish)
		}
		nc.Close()
	}
}

// A second process stands by, and takes over when the first one ends. Clients follow.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	stop := d.run(broker.Config{})
	first := d.found("worker", natsconfig.Worker)
	d.run(broker.Config{})
	nc := d.connect("relay", natsconfig.Relay)
	reconnected := nc.StatusChanged(nats.CONNECTED)
	stop()
	<-reconnected
	d.answers(nc)
	second := d.found("worker", natsconfig.Worker)
	if second.Address == first.Address || second.Password != first.Password {
		t.Errorf("the address is %s, as before %s; the password is the same: %t", second.Address, first.Address,
			second.Password == first.Password)
	}
}

// A server whose connection to the database ends takes the lock again at once, before it renews the lease, and its
// clients stay connected.
func TestLostConnectionKeepsTheServer(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.run(broker.Config{TTL: 10 * patience})
	first := d.found("worker", natsconfig.Worker)
	nc := d.connect("relay", natsconfig.Relay)
	nonce := func() (n int64, err error) {
		err = d.db.QueryRow(t.Context(), `
			select (l.detail->>'nonce')::bigint from taskledger.lease l where l.name = 'broker'`).Scan(&n)
		return n, err
	}
	before, err := nonce()
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.ExecAsOwner(t, d.db, `
		select pg_terminate_backend(k.pid) from pg_locks k
		 where k.locktype = 'advisory' and k.objsubid = 1
		   and k.classid::bigint = $1::bigint >> 32 and k.objid::bigint = $1::bigint & 4294967295`, before)
	d.await("another nonce", func() error {
		if now, err := nonce(); err != nil || now == before {
			return fmt.Errorf("%d: %w", now, err)
		}
		return nil
	})
	if again := d.found("worker", natsconfig.Worker); again != first {
		t.Errorf("the address is %s, was %s", again.Address, first.Address)
	}
	if nc.Stats().Reconnects != 0 {
		t.Errorf("the client has reconnected %d times", nc.Stats().Reconnects)
	}
}

// Outside of loopback the server requires TLS, whose certificate the clients find in the database.
func TestTLSOutsideOfLoopback(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.run(broker.Config{Listen: "0.0.0.0", Advertise: "127.0.0.1"})
	f := d.found("worker", natsconfig.Worker)
	if f.CA == "" {
		t.Fatal("the database has no certificate")
	}
	d.connect("worker", natsconfig.Worker)
	nc, err := nats.Connect("nats://"+f.Address, nats.UserInfo(f.User, f.Password), nats.Timeout(time.Second))
	if err == nil {
		nc.Close()
		t.Error("connected without TLS")
	}
	// Another certificate under the same address is refused. A trigger forges it, because the server renews its row.
	ledgertest.ExecAsOwner(t, d.db, fmt.Sprintf(`
		create function forge() returns trigger language plpgsql as $$
		begin
		    new.detail := (new.detail::jsonb || jsonb_build_object('ca', '%s'))::json;
		    return new;
		end $$;
		create trigger forge before update on taskledger.lease for each row when (new.name = 'broker')
		    execute function forge();
		update taskledger.lease set alive_until = 'infinity' where name = 'broker'`, anotherCertificate))
	_, err = natsclient.Connect(ledgertest.As(t, d.db, "worker"), natsconfig.Worker, nats.RetryOnFailedConnect(false))
	if !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Errorf("connect to a server with another certificate: %v, want that it is refused", err)
	}
}

// An unusable configuration is refused with the cure.
func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	peers := func(listen string, peers ...string) broker.Config {
		return broker.Config{DB: d.db, Dir: "d", ClusterListen: listen, Peers: peers}
	}
	for _, tt := range []struct {
		name   string
		config broker.Config
		ok     bool
	}{
		{name: "no directory", config: broker.Config{DB: d.db}},
		{name: "every address, none advertised", config: broker.Config{DB: d.db, Dir: "d", Listen: "0.0.0.0:4222"}},
		{name: "a port alone, none advertised", config: broker.Config{DB: d.db, Dir: "d", Listen: ":4222"}},
		{name: "no port", config: broker.Config{DB: d.db, Dir: "d", Listen: "127.0.0.1:99999"}},
		{name: "advertised", config: broker.Config{DB: d.db, Dir: "d", Listen: ":4222", Advertise: "nats"}, ok: true},
		{name: "loopback", config: broker.Config{DB: d.db, Dir: "d", Listen: "[::1]:4222"}, ok: true},
		{name: "peers", config: peers("", "127.0.0.1", "b", "c:7"), ok: true},
		{name: "the port of a peer", ok: true,
			config: peers("127.0.0.1:8", "127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:9")},
		{name: "no peer is this process", config: peers("", "a", "b", "c")},
		{name: "several peers are this process", config: peers("", "127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:9")},
		{name: "two peers", config: peers("", "127.0.0.1", "b")},
		{name: "a peer twice", config: peers("", "127.0.0.1", "B:6222", "b")},
		{name: "a peer is a URL", config: peers("", "127.0.0.1", "nats://b:6222", "c")},
		{name: "a peer without a host", config: peers("", "127.0.0.1", ":6222", "c")},
		{name: "a peer with an invalid port", config: peers("", "127.0.0.1", "b:66666", "c")},
		{name: "an invalid port for peers", config: peers("127.0.0.1:x", "127.0.0.1", "b", "c")},
		{name: "an address for peers alone", config: peers("127.0.0.1")},
	} {
		if err := tt.config.Validate(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// anotherCertificate is that of no server.
const anotherCertificate = `-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIUErtICHDTALiefT3op8HWQTX1nhswCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMTIzMDcwNTM5WhgPMjEyNjEwMzAwNzA1
MzlaMBAxDjAMBgNVBAMMBW90aGVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
zYv+DtS9AOgWzspnuU5Mil1UKS8lwIrJBUBcRKi3EAooMeDG4VHSOkv/wuF0Omps
DQV9Y7Nm7IAJtiz89DdkLKNTMFEwHQYDVR0OBBYEFP2QS1klYy8/axUGlHYfdN9Z
oKaYMB8GA1UdIwQYMBaAFP2QS1klYy8/axUGlHYfdN9ZoKaYMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAN4aUvC3g9y4hm+IQMGTl7VQ0sQrKOM4
RDAPpDoDZwHUAiAnysklqWPT6V6YyEedd+tqlKZ8U3MSKac70yREbOJw7w==
-----END CERTIFICATE-----`
