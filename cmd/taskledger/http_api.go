package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgpool"
	"github.com/taskledger/taskledger/services"
)

// apiFlags are the options of the HTTP API in serve.
type apiFlags struct {
	pollEvery     time.Duration // of waits, which no relay wakes; 0: the default
	databaseURL   string
	anonymous     bool
	cert, key, ca string
	proxies       []string
	behindTLS     bool
	header, role  string
	traceURL      string
	archive       string // of --archive-to; "": none
}

func (f *apiFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.databaseURL, "http-database-url", "",
		"address of PostgreSQL with the login of the HTTP API (default: serve's)")
	flags.BoolVar(&f.anonymous, "http-anonymous", false,
		"admit requests without a token, as admin; only if --listen is a loopback address")
	flags.StringVar(&f.cert, "http-cert", "",
		"`file` of the certificate of the HTTP server, read again when it changes (default: no TLS)")
	flags.StringVar(&f.key, "http-key", "", "`file` of its key")
	flags.StringVar(&f.ca, "http-client-ca", "", "`file` of the CA of client certificates, which name callers")
	flags.StringSliceVar(&f.proxies, "http-proxy", nil,
		"`address` or network of a proxy that names callers; may be repeated")
	flags.BoolVar(&f.behindTLS, "http-behind-tls", false,
		"a proxy speaks TLS with browsers: mark the cookies of the console as Secure")
	flags.StringVar(&f.header, "http-proxy-header", "", "`header` with the name (default: X-Forwarded-User)")
	flags.StringVar(&f.role, "http-proxy-role", "", "role of callers that never had a token (default: none)")
	flags.StringVar(&f.traceURL, "trace-url", "", "address of a trace, with {trace_id} for its ID: `URL` to which "+
		"the console links tasks (default: none)")
	bind(flags, "trace-url", "TASKLEDGER_TRACE_URL")
	for _, name := range []string{
		"database-url", "anonymous", "cert", "key", "client-ca", "proxy", "proxy-header",
		"proxy-role", "behind-tls",
	} {
		bind(flags, "http-"+name, "TASKLEDGER_HTTP_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	}
}

// proxy returns the proxy that the flags name.
func (f apiFlags) proxy() (p services.Proxy, err error) {
	for _, text := range f.proxies {
		prefix, err := netip.ParsePrefix(text)
		if address, addressErr := netip.ParseAddr(text); addressErr == nil {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil {
			return p, usagef("--http-proxy must be an address or a network as 10.0.0.0/8, got %q", text)
		}
		p.From = append(p.From, prefix)
	}
	p.Header, p.Role = f.header, f.role
	isOfNoHeader := func(c rune) bool { return c <= ' ' || c > '~' || c == ':' }
	switch {
	case p.From == nil && (p.Header != "" || p.Role != ""):
		return p, usagef("--http-proxy-header and --http-proxy-role need --http-proxy")
	case strings.ContainsFunc(p.Header, isOfNoHeader):
		return p, usagef("--http-proxy-header must be the name of a header, got %q", p.Header)
	case p.Role != "" && !slices.Contains(api.Roles(), api.Role(p.Role)):
		return p, usagef("--http-proxy-role must be viewer, producer, worker, operator or admin, got %q", p.Role)
	}
	return p, nil
}

// scheme returns the beginning of the URL of the HTTP server.
func (f apiFlags) scheme() string {
	if f.cert != "" {
		return "https://"
	}
	return "http://"
}

// secure returns the listener with TLS, if the flags name a certificate.
func (f apiFlags) secure(l net.Listener, log *slog.Logger) (net.Listener, error) {
	switch {
	case l == nil:
		return nil, nil
	case f.anonymous && !l.Addr().(*net.TCPAddr).IP.IsLoopback():
		return nil, usagef("--http-anonymous needs a loopback address, got --listen %s", l.Addr()).
			hinted("listen on 127.0.0.1, or make tokens: taskledger create token")
	case (f.cert == "") != (f.key == ""):
		return nil, usagef("--http-cert and --http-key must be set together")
	case f.cert == "" && f.ca != "":
		return nil, usagef("--http-client-ca needs --http-cert and --http-key")
	case f.cert == "":
		return l, nil
	}
	pair, err := newServerCertificate(f.cert, f.key, log)
	if err != nil {
		return nil, usagef("cannot read the certificate of the HTTP server: %s", err)
	}
	config := &tls.Config{GetCertificate: pair.get, MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, usagef("--http-client-ca: %s", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, usagef("--http-client-ca: %s contains no certificate in PEM form", f.ca)
		}
		config.ClientAuth = tls.VerifyClientCertIfGiven // tokens work as well, and probes
	}
	return tls.NewListener(l, config), nil
}

// leastConnections is the least size of the API's pool. The services use a separate pool, so that requests do not take
// their connections.
const leastConnections = 8

// httpAPI returns the API and the console, and a function that closes everything they use.
func (a *app) httpAPI(ctx context.Context, f apiFlags) (handler *services.Handler, stop func(), err error) {
	var opened []func()
	closeAll := func() {
		for _, end := range slices.Backward(opened) {
			end()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	proxy, err := f.proxy()
	if err != nil {
		return nil, nil, err
	}
	address := f.databaseURL
	if address == "" {
		address = a.config.databaseURL
	}
	open := func() (*pgxpool.Pool, error) {
		config, err := a.databaseConfig(address)
		if err != nil {
			return nil, err
		}
		pgpool.Limit(config, address, max(leastConnections, 4*runtime.GOMAXPROCS(0)))
		db, err := pgxpool.NewWithConfig(ctx, config)
		if err == nil {
			opened = append(opened, db.Close)
		}
		return db, err
	}
	connect := func(user string) (*nats.Conn, error) {
		nc, err := a.httpNATS(user)
		if err == nil {
			opened = append(opened, nc.Close)
		}
		return nc, err
	}
	c := services.HandlerConfig{PollEvery: f.pollEvery, Anonymous: f.anonymous, Certificates: f.ca != "", Proxy: proxy,
		IsBehindTLS: f.behindTLS, TraceURL: f.traceURL, ArchiveTo: f.archive, OpenObjects: a.openStore,
		Version: readVersion(),
		Logger:  a.log.With("service", "http")}
	if c.DB, err = open(); err != nil {
		return nil, nil, err
	}
	if c.NATS, err = connect(natsconfig.Relay); err != nil {
		return nil, nil, err
	}
	if c.WorkDB, err = open(); err != nil {
		return nil, nil, err
	}
	if c.WorkNATS, err = connect(natsconfig.Worker); err != nil {
		return nil, nil, err
	}
	c.Checks = func(ctx context.Context) []services.Check { return a.checks(ctx, c.DB) }
	handler, err = services.NewHandler(c)
	if err == nil {
		opened = append(opened, handler.Drain)
	}
	return handler, closeAll, err
}

// httpNATS returns a connection of the API, as a user of the NATS server of serve.
func (a *app) httpNATS(user string) (*nats.Conn, error) {
	if a.config.natsURL != "" {
		return a.connectNATS(true)
	}
	// The server that a process of serve runs: it may begin later.
	return natsclient.Connect(a.db, user, nats.Name("taskledger"), nats.RetryOnFailedConnect(true))
}
