package main

import (
	"bytes"
	"context"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// program runs command lines with an environment.
type program struct {
	t   *testing.T
	env map[string]string
}

// run runs a command line with further settings. It returns the exit code and what is printed.
func (p program) run(extra map[string]string, args ...string) (code int, out, errs string) {
	p.t.Helper()
	env := make(map[string]string)
	maps.Copy(env, p.env)
	maps.Copy(env, extra)
	a := newApp()
	a.getenv = func(name string) string { return env[name] }
	var stdout, stderr bytes.Buffer
	code = a.Run(p.t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// tlsTest is a connection that is refused, with its cure.
type tlsTest struct {
	name string
	env  map[string]string
	exit int
	want []string // parts of the error and of the hint
}

func (p program) check(tests []tlsTest, args ...string) {
	p.t.Helper()
	for _, test := range tests {
		code, _, errs := p.run(test.env, args...)
		if code != test.exit {
			p.t.Errorf("%s: exit code %d, want %d: %s", test.name, code, test.exit, errs)
		}
		for _, part := range test.want {
			if !strings.Contains(errs, part) {
				p.t.Errorf("%s: %q is not in %s", test.name, part, errs)
			}
		}
	}
}

// Commands connect to PostgreSQL by TLS with verification. Each refused certificate has its cure.
func TestTLSToPostgreSQL(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.issue("postgres", time.Hour)
	access := filepath.Join(ca.dir, "pg_hba.conf")
	ca.writeText(access, []byte("hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"+
		"hostnossl all all 127.0.0.1/32 scram-sha-256\n"))
	server := ledgertest.Cluster(t, map[string]string{
		"ssl": "on", "ssl_cert_file": cert, "ssl_key_file": key, "ssl_ca_file": ca.file, "hba_file": access,
	})
	clientCert, clientKey := ca.issue("client", time.Hour)
	foreignCert, foreignKey := other.issue("client", time.Hour)
	plain, err := url.Parse(server.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	withClient := func(host, caFile string, client url.Values) map[string]string {
		u := *plain
		u.Host = host + ":" + plain.Port()
		query := url.Values{"sslmode": {"verify-full"}, "sslrootcert": {caFile}}
		maps.Copy(query, client)
		u.RawQuery = query.Encode()
		return map[string]string{envDatabaseURL: u.String()}
	}
	address := func(host, caFile string) map[string]string {
		return withClient(host, caFile, url.Values{"sslcert": {clientCert}, "sslkey": {clientKey}})
	}
	untrusted, err := url.Parse(ledgertest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	untrusted.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.file}}.Encode()
	p := program{t: t}
	p.check([]tlsTest{
		{name: "valid", env: address("127.0.0.1", ca.file), exit: exitOK},
		{
			name: "another CA", env: address("127.0.0.1", other.file), exit: exitUnavailable,
			want: []string{"signed by unknown authority", "hint: name the file of the CA that", "sslrootcert in"},
		},
		{
			name: "another name", env: address("localhost", ca.file), exit: exitUnavailable,
			want: []string{"localhost", "hint: name the server in DATABASE_URL as its certificate does"},
		},
		{
			name: "no certificate", env: withClient("127.0.0.1", ca.file, nil), exit: exitUnavailable,
			want: []string{"requires a certificate of the client", "sslcert and sslkey in DATABASE_URL"},
		},
		{
			name: "certificate of another CA", exit: exitUnavailable,
			env:  withClient("127.0.0.1", ca.file, url.Values{"sslcert": {foreignCert}, "sslkey": {foreignKey}}),
			want: []string{"requires a certificate of the client", "sslcert and sslkey in DATABASE_URL"},
		},
		{
			name: "no file", env: address("127.0.0.1", ca.file+".none"), exit: exitUsage,
			want: []string{"names a file that cannot be read", "ca.pem.none"},
		},
		{
			name: "CA without a certificate", env: address("127.0.0.1", key), exit: exitUsage,
			want: []string{"unusable files for TLS: unable to add CA", "hint: write certificates and keys in PEM form"},
		},
		{
			name: "key of another certificate", exit: exitUsage,
			env:  withClient("127.0.0.1", ca.file, url.Values{"sslcert": {clientCert}, "sslkey": {foreignKey}}),
			want: []string{"private key does not match", "hint: write certificates and keys in PEM form"},
		},
		{
			name: "certificate without a key", exit: exitUsage,
			env:  withClient("127.0.0.1", ca.file, url.Values{"sslcert": {clientCert}}),
			want: []string{`both "sslcert" and "sslkey" are required`, "hint: write certificates"},
		},
		{
			name: "no TLS", env: map[string]string{envDatabaseURL: untrusted.String()}, exit: exitUnavailable,
			want: []string{"refused TLS", "hint: enable TLS in PostgreSQL"},
		},
	}, "show", "kinds")
	if code, _, errs := p.run(address("127.0.0.1", ca.file), "migrate", "up"); code != exitOK {
		t.Errorf("migrate: exit code %d: %s", code, errs)
	}

	ca.issue("postgres", -time.Hour) // in place of the valid one
	reload(t, server.URL(ledgertest.Database))
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		code, _, errs := p.run(address("127.0.0.1", ca.file), "show", "kinds")
		if code == exitUnavailable && strings.Contains(errs, "expired") &&
			strings.Contains(errs, "hint: renew the certificate of PostgreSQL") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("an expired certificate: exit code %d: %s", code, errs)
		}
	}
}

// reload makes PostgreSQL read its certificate again.
func reload(t *testing.T, address string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "select pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
}

// startNATS starts a server with the configuration that nats-config prints, with certificates of ca. It returns its
// host and port, and the directory of the users' seeds.
func startNATS(t *testing.T, ca *authority, validFor time.Duration) (host, keys string) {
	t.Helper()
	dir := t.TempDir()
	keys = filepath.Join(dir, "keys")
	cert, key := ca.issue("nats", validFor)
	config := printNATSConfig(t, "--keys", keys, "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca.file)
	_, config, _ = strings.Cut(config, "tls {") // without the store's directory
	server, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats"), Accounts: "tls {" + config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.Host(), keys
}

// Commands connect to NATS by TLS, with a certificate and a key of their user. Each refused one has its cure.
func TestTLSToNATS(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	host, keys := startNATS(t, ca, time.Hour)
	cert, key := ca.issue("client", time.Hour)
	foreignCert, foreignKey := other.issue("client", time.Hour)
	expiredHost, _ := startNATS(t, newExpired(t, ca), -time.Hour)
	plain, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	noSeed := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(noSeed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(host, ":")
	p := program{t: t, env: map[string]string{
		envDatabaseURL: ledgertest.URL(t, "reader"), envNATSURL: "tls://" + host, envNATSCA: ca.file, envNATSCert: cert,
		envNATSKey: key, envNATSNkey: natsconfig.SeedFile(keys, natsconfig.Operator),
	}}
	p.check([]tlsTest{
		{name: "valid", exit: exitOK},
		{name: "valid, TLS by the server", env: map[string]string{envNATSURL: "nats://" + host}, exit: exitOK},
		{
			name: "another CA", env: map[string]string{envNATSCA: other.file}, exit: exitUnavailable,
			want: []string{"signed by unknown authority", "hint: name the file of the CA", "NATS_CA"},
		},
		{
			name: "CA of the machine", env: map[string]string{envNATSCA: ""}, exit: exitUnavailable,
			want: []string{"signed by unknown authority", "NATS_CA"},
		},
		{
			name: "another name", env: map[string]string{envNATSURL: "tls://localhost:" + port}, exit: exitUnavailable,
			want: []string{"localhost", "hint: name the server in NATS_URL as its certificate does"},
		},
		{
			name: "expired", env: map[string]string{envNATSURL: "tls://" + expiredHost}, exit: exitUnavailable,
			want: []string{"expired", "hint: renew the certificate of NATS"},
		},
		{
			name: "no certificate", env: map[string]string{envNATSCert: "", envNATSKey: ""}, exit: exitUnavailable,
			want: []string{"requires a certificate of the client", "NATS_CERT and NATS_KEY"},
		},
		{
			name: "certificate of another CA", env: map[string]string{envNATSCert: foreignCert, envNATSKey: foreignKey},
			exit: exitUnavailable, want: []string{"requires a certificate of the client", "NATS_CERT and NATS_KEY"},
		},
		{
			name: "no TLS", env: map[string]string{envNATSURL: "tls://" + plain.Host(), envNATSNkey: ""},
			exit: exitUnavailable, want: []string{"hint: enable TLS in NATS"},
		},
		{
			name: "no file", env: map[string]string{envNATSCA: ca.file + ".none"}, exit: exitUsage,
			want: []string{"NATS_CA", "ca.pem.none"},
		},
		{
			name: "CA without a certificate", env: map[string]string{envNATSCA: noSeed}, exit: exitUsage,
			want: []string{"NATS_CA", "it contains no certificate", "hint: write the certificate of the CA"},
		},
		{
			name: "key of another certificate", env: map[string]string{envNATSKey: foreignKey}, exit: exitUsage,
			want: []string{"NATS_CERT and NATS_KEY", "private key does not match", "hint: write the client's"},
		},
		{
			name: "no key file", env: map[string]string{envNATSKey: ""}, exit: exitUsage,
			want: []string{"NATS_CERT and NATS_KEY must be set together"},
		},
		{
			name: "no seed", env: map[string]string{envNATSNkey: noSeed}, exit: exitUsage,
			want: []string{"is not the seed of a user", "hint: make keys"},
		},
		{
			name: "no user", env: map[string]string{envNATSNkey: ""}, exit: exitUnavailable,
			want: []string{"Authorization Violation", "NATS_NKEY"},
		},
	}, "show", "stream")
}

// newExpired returns ca with another directory, so that it does not overwrite its files.
func newExpired(t *testing.T, ca *authority) *authority {
	t.Helper()
	expired := *ca
	expired.dir = t.TempDir()
	return &expired
}

// Serve works with TLS to both servers and with the rights of its user, and status with those of an operator.
func TestServeByTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.issue("postgres", time.Hour)
	server := ledgertest.Cluster(t, map[string]string{"ssl": "on", "ssl_cert_file": cert, "ssl_key_file": key})
	database, err := url.Parse(server.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	database.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.file}}.Encode()
	host, keys := startNATS(t, ca, time.Hour)
	cert, key = ca.issue("client", time.Hour)
	p := program{t: t, env: map[string]string{
		envDatabaseURL: database.String(), envNATSURL: "tls://" + host, envNATSCA: ca.file, envNATSCert: cert,
		envNATSKey: key, envNATSNkey: natsconfig.SeedFile(keys, natsconfig.Operator),
	}}
	relay := maps.Clone(p.env)
	relay[envNATSNkey] = natsconfig.SeedFile(keys, natsconfig.Relay)
	stop := startServe(t, relay)
	if code, _, errs := p.run(nil, "enqueue", "a", "1"); code != exitOK {
		t.Fatalf("enqueue: exit code %d: %s", code, errs)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		code, out, errs := p.run(nil, "status", "-o", "json")
		if code == exitOK && strings.Contains(out, `"degraded": []`) && strings.Contains(out, `"messages": 1`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status: exit code %d: %s%s", code, out, errs)
		}
	}
	stop()
}

// startServe runs serve with an environment until stop is called.
func startServe(t *testing.T, env map[string]string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var out, errs bytes.Buffer
	a := newApp()
	a.getenv = func(name string) string { return env[name] }
	go func() { ended <- a.Run(ctx, []string{"serve"}, strings.NewReader(""), &out, &errs) }()
	return func() {
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("serve: exit code %d: %s", code, errs.String())
		}
	}
}
