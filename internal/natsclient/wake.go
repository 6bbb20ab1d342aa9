package natsclient

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
)

//go:embed sql/asleep.sql
var asleepSQL string

// wakeTimeout bounds the message to one server.
const wakeTimeout = time.Second

// wakers are the users that may wake the services.
var wakers = []string{natsconfig.Waiter, natsconfig.Worker, natsconfig.Operator, natsconfig.Relay}

// Wake wakes the services whose process runs the NATS server of a database and sleeps. It reports whether a server has
// received the message. If no server sleeps, it does nothing: services that are awake read the ledger.
//
// A copy of a database that was made meanwhile wakes the services of its original, which does no harm.
func Wake(ctx context.Context, db pgquery.Querier) (wasAsleep bool, err error) {
	servers, err := asleep(ctx, db)
	if err != nil || len(servers) == 0 {
		return false, err
	}
	users, err := Users(ctx, db)
	i := slices.IndexFunc(wakers, func(user string) bool { return users[user] != "" })
	if pgerr.Is(err, pgerr.InsufficientPrivilege) || err == nil && i < 0 {
		return false, &NoUserError{User: natsconfig.Waiter}
	}
	if err != nil {
		return false, err
	}
	var failures []error
	for _, s := range servers {
		s.User, s.Password = wakers[i], users[wakers[i]]
		if err := s.wake(ctx); err != nil {
			failures = append(failures, fmt.Errorf("wake the NATS server at %s: %w", s.Address, err))
			continue
		}
		return true, nil
	}
	return false, errors.Join(failures...)
}

// asleep returns the servers whose processes sleep, without credentials.
func asleep(ctx context.Context, db pgquery.Querier) (servers []Server, err error) {
	rows, err := db.Query(ctx, asleepSQL)
	if err != nil {
		return nil, pgerr.Explain("find a NATS server that sleeps", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s Server
		if err := rows.Scan(&s.Address, &s.CA); err != nil {
			return nil, pgerr.Explain("find a NATS server that sleeps", err)
		}
		servers = append(servers, s)
	}
	return servers, pgerr.Explain("find a NATS server that sleeps", rows.Err())
}

// wake sends the message.
func (f Server) wake(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	nc, err := stream.Connect(stream.FoundURL, nats.SetCustomDialer(&oneDialer{ctx, f}), nats.SkipHostLookup(),
		nats.IgnoreDiscoveredServers(), nats.UserInfo(f.User, f.Password), nats.NoReconnect(),
		nats.Timeout(wakeTimeout))
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.Publish(stream.PrefixOf(nc).Wake(), nil); err != nil {
		return err
	}
	return nc.FlushWithContext(ctx)
}
