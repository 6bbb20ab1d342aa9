package main

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/outbox"
)

// connectTimeout bounds an attempt to connect if the address has no timeout.
const connectTimeout = 5 * time.Second

// openDatabase connects to the database and checks that it answers.
func (a *app) openDatabase(ctx context.Context) (*pgxpool.Pool, error) {
	if err := a.locate(); err != nil {
		return nil, err
	}
	if a.config.databaseURL == "" {
		return nil, a.errNoDatabase()
	}
	config, err := pgxpool.ParseConfig(a.config.databaseURL)
	if missing := (*fs.PathError)(nil); errors.As(err, &missing) {
		return nil, usagef("the database address names a file that cannot be read: %s", missing)
	}
	if err != nil {
		// The cause may quote parts of a password, which cannot be recognized.
		return nil, usagef("the database address is invalid").
			hinted("write it as postgres://user:password@host:port/database, with special characters percent-encoded")
	}
	a.secrets.learn(config.ConnConfig.Password)
	a.database = config.ConnConfig.Database
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "taskledger"
	}
	// Keys are UTF-8. A role may have another client_encoding, which would store other characters.
	maps.DeleteFunc(config.ConnConfig.RuntimeParams, func(name, _ string) bool {
		return strings.EqualFold(name, "client_encoding")
	})
	config.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// connectNATS connects to NATS. With wait, the server may be unavailable at first.
func (a *app) connectNATS(wait bool, options ...nats.Option) (*nats.Conn, error) {
	if a.config.natsURL == "" {
		return nil, a.errNoNATS()
	}
	options = append(options, nats.Name("taskledger"), nats.Timeout(connectTimeout), nats.RetryOnFailedConnect(wait))
	credentials, err := a.natsCredentials()
	if err != nil {
		return nil, err
	}
	nc, err := outbox.Connect(a.config.natsURL, append(options, credentials...)...)
	if err != nil {
		f := failf(exitUnavailable, "cannot connect to NATS: %s", reason(errors.Unwrap(err))).
			hinted("check %s, %s and %s, and that NATS is running there", envNATSURL, envNATSCreds, envNATSNkey)
		if cure := natsTLS.cure(err); cure != "" {
			f.hint = cure
		}
		return nil, f
	}
	return nc, nil
}

// natsCredentials returns the options of the flags for credentials and TLS.
func (a *app) natsCredentials() (options []nats.Option, err error) {
	c := a.config
	if (c.natsCert == "") != (c.natsKey == "") {
		return nil, usagef("%s and %s must be set together", envNATSCert, envNATSKey)
	}
	for _, file := range []struct{ variable, name string }{
		{envNATSCreds, c.natsCreds}, {envNATSNkey, c.natsNkey}, {envNATSCA, c.natsCA}, {envNATSCert, c.natsCert},
		{envNATSKey, c.natsKey},
	} {
		if file.name == "" {
			continue
		}
		if f, err := os.Open(file.name); err != nil {
			return nil, usagef("%s: %s", c.source(file.variable), err)
		} else if err := f.Close(); err != nil {
			return nil, err
		}
	}
	if c.natsCreds != "" {
		options = append(options, nats.UserCredentials(c.natsCreds))
	}
	if c.natsNkey != "" {
		key, err := nats.NkeyOptionFromSeed(c.natsNkey)
		if err != nil {
			return nil, usagef("%s: %s is not the seed of a user", c.source(envNATSNkey), c.natsNkey).
				hinted("make keys: taskledger nats-config --keys DIR")
		}
		options = append(options, key)
	}
	if c.natsCA != "" {
		options = append(options, nats.RootCAs(c.natsCA))
	}
	if c.natsCert != "" {
		options = append(options, nats.ClientCert(c.natsCert, c.natsKey))
	}
	return options, nil
}
