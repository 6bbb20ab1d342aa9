package natsclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
)

// ServerName is the name in the server's certificate, whatever its address is. Clients trust this certificate alone,
// which they read from the database.
const ServerName = "taskledger-nats"

// Connect opens a connection to a database's server as a user. It looks the server up at each connection attempt, so it
// follows the server to another process or machine.
func Connect(db pgquery.Querier, user string, options ...nats.Option) (*nats.Conn, error) {
	return ConnectNear(func() string { return "" }, db, user, options...)
}

// ConnectNear is [Connect] for a process that prefers the server at an address, such as its own: preferred returns it,
// or "".
func ConnectNear(
	preferred func() string, db pgquery.Querier, user string, options ...nats.Option,
) (*nats.Conn, error) {
	d := &dialer{db: db, user: user, preferred: preferred}
	all := []nats.Option{
		nats.SetCustomDialer(d), nats.UserInfoHandler(d.credentials), nats.SkipHostLookup(),
		nats.IgnoreDiscoveredServers(), nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2),
	}
	return stream.Connect(stream.FoundURL, append(all, options...)...)
}

// pingEvery is how often a client pings its server. It leaves a server that is paused or cut off for three intervals.
const pingEvery = 2 * time.Second

// dialer finds the server when a connection is opened. It is safe for concurrent use.
type dialer struct {
	db        pgquery.Querier
	user      string
	preferred func() string // address of the server to try first, or ""

	mu    sync.Mutex
	found Server
}

// Dial implements [nats.CustomDialer]. It ignores the address.
func (d *dialer) Dial(network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	servers, err := FindAll(ctx, d.db, d.user)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(servers), func(i, k int) { servers[i], servers[k] = servers[k], servers[i] })
	preferred := d.preferred()
	if own := slices.IndexFunc(servers, func(f Server) bool { return f.Address == preferred }); own > 0 {
		servers[0], servers[own] = servers[own], servers[0]
	}
	var failures []error
	for i, found := range servers {
		conn, err := dialOne(ctx, network, found, len(servers)-i)
		if err == nil {
			d.mu.Lock()
			d.found = found
			d.mu.Unlock()
			return conn, nil
		}
		failures = append(failures, &UnreachableError{Address: found.Address, Err: err})
	}
	return nil, errors.Join(failures...)
}

// dialOne connects to a server. It uses only its share of the remaining time, so that all servers can be tried.
func dialOne(ctx context.Context, network string, found Server, servers int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(servers))
		defer cancel()
	}
	var n net.Dialer
	conn, err := n.DialContext(ctx, network, found.Address)
	if err != nil || found.CA == "" {
		return conn, err
	}
	return secure(ctx, conn, found)
}

// oneDialer connects to one server until ctx is done.
type oneDialer struct {
	ctx    context.Context
	server Server
}

// Dial implements [nats.CustomDialer]. It ignores the address.
func (d *oneDialer) Dial(network, _ string) (net.Conn, error) {
	return dialOne(d.ctx, network, d.server, 1)
}

// SkipTLSHandshake reports to package nats that [oneDialer.Dial] has begun TLS.
func (d *oneDialer) SkipTLSHandshake() bool { return true }

// SkipTLSHandshake reports to package nats that [dialer.Dial] has begun TLS.
func (d *dialer) SkipTLSHandshake() bool { return true }

// secure begins TLS at once, which the server of package broker expects.
func secure(ctx context.Context, conn net.Conn, found Server) (net.Conn, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(found.CA)) {
		return nil, errors.Join(errors.New("the CA of the NATS server in the database is invalid"), conn.Close())
	}
	secured := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: ServerName, MinVersion: tls.VersionTLS13})
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// credentials returns user and password of the server that was dialed last.
func (d *dialer) credentials() (user, password string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found.User, d.found.Password
}
