package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
)

var (
	//go:embed sql/find.sql
	findSQL string
	//go:embed sql/password_worker.sql
	passwordWorkerSQL string
	//go:embed sql/password_operator.sql
	passwordOperatorSQL string
	//go:embed sql/users.sql
	usersSQL string
)

// dialTimeout bounds finding the server and connecting to it.
const dialTimeout = 5 * time.Second

// NotFoundError is returned if a database has no NATS server that this program may use.
type NotFoundError struct {
	Reason string
	Cure   string
}

func (e *NotFoundError) Error() string { return e.Reason }

var (
	errNone = &NotFoundError{
		Reason: "no process runs a NATS server for this database",
		Cure:   "start taskledger serve with DATABASE_URL alone, or set NATS_URL",
	}
	errElsewhere = &NotFoundError{
		Reason: "the NATS server that this database names is not connected to it: " +
			"the database is a copy, or the server is lost",
		Cure: "start taskledger serve with the DATABASE_URL of this database",
	}
)

// Found is the NATS server of a database.
type Found struct {
	Address  string // host and port
	CA       string // PEM of the CA of its certificate; "" if it has none
	User     string
	Password string
}

// Find returns the server of a database for a user of package natsconfig: Worker, Operator or Relay.
//
// Errors: a [*NotFoundError]; the database's if the login lacks the role of the user.
func Find(ctx context.Context, db pgquery.Querier, user string) (Found, error) {
	f := Found{User: user}
	var isAlive, isHere bool
	found, err := pgquery.Row(ctx, db, findSQL, nil, &f.Address, &f.CA, &isAlive, &isHere)
	switch {
	case err != nil:
		return Found{}, pgerr.Explain("find the NATS server", err)
	case !found, !isAlive, f.Address == "":
		return Found{}, errNone
	case !isHere:
		return Found{}, errElsewhere
	}
	f.Password, err = readPassword(ctx, db, user)
	if err == nil && f.Password == "" {
		err = errNone
	}
	return f, err
}

// awaitEvery is the interval at which Await looks for a server.
const awaitEvery = 50 * time.Millisecond

// Await waits until a database has a server, at most 10 s: a client tries further by itself. It returns no other error
// than that of ctx.
func Await(ctx context.Context, db pgquery.Querier, user string) error {
	bounded, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	for {
		if _, err := Find(bounded, db, user); err == nil {
			return nil
		}
		if loop.Sleep(bounded, awaitEvery) != nil {
			return context.Cause(ctx)
		}
	}
}

func readPassword(ctx context.Context, db pgquery.Querier, user string) (password string, err error) {
	switch user {
	case natsconfig.Worker:
		_, err = pgquery.Row(ctx, db, passwordWorkerSQL, nil, &password)
	case natsconfig.Operator:
		_, err = pgquery.Row(ctx, db, passwordOperatorSQL, nil, &password)
	default:
		users, err := readUsers(ctx, db)
		return users[user], err
	}
	return password, pgerr.Explain("read the password of the NATS user "+user, err)
}

func readUsers(ctx context.Context, db pgquery.Querier) (natsconfig.Passwords, error) {
	rows, err := db.Query(ctx, usersSQL)
	if err != nil {
		return nil, pgerr.Explain("read the NATS users", err)
	}
	defer rows.Close()
	users := make(natsconfig.Passwords)
	for rows.Next() {
		var name, password string
		if err := rows.Scan(&name, &password); err != nil {
			return nil, pgerr.Explain("read the NATS users", err)
		}
		users[name] = password
	}
	return users, pgerr.Explain("read the NATS users", rows.Err())
}

// Connect opens a connection to the server of a database as a user. Each time that it connects it finds the server
// anew, so it follows the server to another process and to another machine.
func Connect(db pgquery.Querier, user string, options ...nats.Option) (*nats.Conn, error) {
	d := &dialer{db: db, user: user}
	all := []nats.Option{
		nats.SetCustomDialer(d), nats.UserInfoHandler(d.credentials), nats.SkipHostLookup(),
		nats.IgnoreDiscoveredServers(), nats.ReconnectWait(250 * time.Millisecond),
	}
	return stream.Connect("nats://ledger.invalid:4222", append(all, options...)...)
}

// dialer finds the server when a connection is opened. It is safe for concurrent use.
type dialer struct {
	db   pgquery.Querier
	user string

	mu    sync.Mutex
	found Found
}

// Dial implements [nats.CustomDialer]. It ignores the address.
func (d *dialer) Dial(network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	found, err := Find(ctx, d.db, d.user)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.found = found
	d.mu.Unlock()
	var n net.Dialer
	conn, err := n.DialContext(ctx, network, found.Address)
	if err != nil || found.CA == "" {
		return conn, err
	}
	return secure(ctx, conn, found)
}

// SkipTLSHandshake reports to package nats that [dialer.Dial] has begun TLS.
func (d *dialer) SkipTLSHandshake() bool { return true }

// secure begins TLS at once, which the server of this package expects.
func secure(ctx context.Context, conn net.Conn, found Found) (net.Conn, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(found.CA)) {
		return nil, errors.Join(errors.New("the database has an invalid CA of the NATS server"), conn.Close())
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
