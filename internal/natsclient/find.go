package natsclient

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/find.sql
	findSQL string
	//go:embed sql/users.sql
	usersSQL string
	//go:embed sql/add_user.sql
	addUserSQL string
)

// dialTimeout bounds finding the server and connecting to it.
const dialTimeout = 5 * time.Second

// NotFoundError is returned if this program may not use any NATS server of a database.
type NotFoundError struct {
	Reason string
	Cure   string
}

func (e *NotFoundError) Error() string { return e.Reason }

var (
	errNone = &NotFoundError{
		Reason: "no process runs a NATS server for this database",
		Cure: "start taskledger serve with DATABASE_URL alone, or set NATS_URL; the log of a running serve " +
			"contains the reason",
	}
	errElsewhere = &NotFoundError{
		Reason: "the NATS server that this database names is not connected to it: " +
			"the database is a copy, or the server is lost",
		Cure: "start taskledger serve with the DATABASE_URL of this database",
	}
)

// NoUserError is returned to a login that lacks the role of a user, which [RoleOf] returns.
type NoUserError struct{ User string }

func (e *NoUserError) Error() string { return "the login may not use the NATS user " + e.User }

// UnreachableError is returned if the NATS server that a database names cannot be reached from this machine.
type UnreachableError struct {
	Address string
	Err     error
}

// Error leaves the words "connection refused" out: package nats replaces an error with them by one without a reason.
func (e *UnreachableError) Error() string {
	cause := "no process listens there"
	if !errors.Is(e.Err, syscall.ECONNREFUSED) {
		cause = strings.TrimSpace(e.Err.Error())
	}
	return fmt.Sprintf("the NATS server of this database cannot be reached at %s: %s", e.Address, cause)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Cure returns the check that an operator should make.
func (e *UnreachableError) Cure() string {
	return "check that this machine reaches it; serve --advertise names its address"
}

// Server is the NATS server of a database.
type Server struct {
	Address  string // host and port
	CA       string // PEM of the CA of its certificate; "" if it has none
	User     string
	Password string
}

// RoleOf returns the role of the logins that may read the password of a user of package natsconfig.
func RoleOf(user string) string {
	switch user {
	case natsconfig.Worker, natsconfig.Operator:
		return user
	case natsconfig.Waiter:
		return "producer"
	case natsconfig.Subscriber, natsconfig.Served, natsconfig.ServerOf(natsconfig.Served):
		return "subscriber"
	default:
		return "relay"
	}
}

// URL returns the address with user and password. The scheme is tls if the server requires TLS.
func (f Server) URL() string {
	u := url.URL{Scheme: "nats", User: url.UserPassword(f.User, f.Password), Host: f.Address}
	if f.CA != "" {
		u.Scheme = "tls"
	}
	return u.String()
}

// Find returns the server of a database for a user of package natsconfig.
//
// Errors: a [*NotFoundError]; a [*NoUserError] if the login lacks the role of the user.
func Find(ctx context.Context, db pgquery.Querier, user string) (Server, error) {
	all, err := FindAll(ctx, db, user)
	if err != nil {
		return Server{}, err
	}
	return all[0], nil
}

// FindAll returns all servers of a database: one, or the members of its cluster. It returns the errors of [Find].
func FindAll(ctx context.Context, db pgquery.Querier, user string) ([]Server, error) {
	servers, err := readServers(ctx, db)
	if err != nil {
		return nil, err
	}
	users, err := Users(ctx, db)
	if pgerr.Is(err, pgerr.InsufficientPrivilege) || err == nil && users[user] == "" {
		return nil, &NoUserError{User: user}
	}
	if err != nil {
		return nil, err
	}
	for i := range servers {
		servers[i].User, servers[i].Password = user, users[user]
	}
	return servers, nil
}

// readServers returns the servers that are connected to this database, without credentials; at least one.
func readServers(ctx context.Context, db pgquery.Querier) (servers []Server, err error) {
	rows, err := db.Query(ctx, findSQL)
	if err != nil {
		return nil, pgerr.Explain("find the NATS server", err)
	}
	defer rows.Close()
	none := errNone
	for rows.Next() {
		var f Server
		var isHere bool
		if err := rows.Scan(&f.Address, &f.CA, &isHere); err != nil {
			return nil, pgerr.Explain("find the NATS server", err)
		}
		if !isHere {
			none = errElsewhere
			continue
		}
		servers = append(servers, f)
	}
	if err := rows.Err(); err != nil {
		return nil, pgerr.Explain("find the NATS server", err)
	}
	if len(servers) == 0 {
		return nil, none
	}
	return servers, nil
}

// awaitEvery is the interval at which Await looks for a server.
const awaitEvery = 50 * time.Millisecond

// Await waits for a database's server, at most 10 s; afterwards the client's own retries continue. It returns an
// error only if ctx is done.
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

// Users returns the passwords of the users that the login may use: all of them with the role relay.
func Users(ctx context.Context, db pgquery.Querier) (natsconfig.Passwords, error) {
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

// AddUser adds a user, unless it exists, for a login with the role relay.
func AddUser(ctx context.Context, db pgquery.Querier, name, password string) error {
	var isNew bool
	_, err := pgquery.Row(ctx, db, addUserSQL, []any{name, password}, &isNew)
	return pgerr.Explain("add the NATS user "+name, err)
}
