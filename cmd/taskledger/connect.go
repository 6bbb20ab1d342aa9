package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/pgpool"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
)

// openDatabase connects to the database and checks that it answers.
func (a *app) openDatabase(ctx context.Context) (*pgxpool.Pool, error) {
	if err := a.locate(); err != nil {
		return nil, err
	}
	if a.config.databaseURL == "" {
		return nil, a.errNoDatabase()
	}
	config, err := a.databaseConfig(a.config.databaseURL)
	if err != nil {
		return nil, err
	}
	a.database = config.ConnConfig.Database
	if a.conns > 0 {
		pgpool.Limit(config, a.config.databaseURL, a.conns)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	a.db = pool
	return pool, nil
}

// databaseConfig returns the configuration of a pool for an address of PostgreSQL.
func (a *app) databaseConfig(address string) (*pgxpool.Config, error) {
	config, err := pgpool.Parse(address)
	if missing := (*fs.PathError)(nil); errors.As(err, &missing) {
		return nil, usagef("the database address names a file that cannot be read: %s", missing)
	}
	if fault := tlsFileFault(err); fault != "" {
		return nil, usagef("the database address names unusable files for TLS: %s", fault).
			hinted("write certificates and keys in PEM form: the CA's to the file in sslrootcert, the client's to " +
				"the files in sslcert and sslkey, which must match; an encrypted key needs sslpassword")
	}
	if err != nil {
		// The cause may quote parts of a password, which cannot be recognized.
		return nil, usagef("the database address is invalid").
			hinted("write it as postgres://user:password@host:port/database, with special characters percent-encoded")
	}
	a.secrets.learn(config.ConnConfig.Password)
	pgpool.Configure(config, "taskledger")
	return config, nil
}

// connectNATS connects to NATS. With wait, the server may be unavailable at first.
func (a *app) connectNATS(wait bool, options ...nats.Option) (*nats.Conn, error) {
	if a.config.natsURL == "" {
		return a.findNATS(wait, options...)
	}
	options = append(options, nats.Name("taskledger"), nats.Timeout(pgpool.ConnectTimeout),
		nats.RetryOnFailedConnect(wait))
	credentials, err := a.natsCredentials()
	if err != nil {
		return nil, err
	}
	options = append(append(options, credentials...), stream.Prefix(a.config.natsPrefix).Option())
	nc, err := outbox.Connect(a.config.natsURL, options...)
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

// wakeTimeout bounds the message that wakes services.
const wakeTimeout = 2 * time.Second

// wake wakes services that sleep, after a change. Without it they see the change when they wake by themselves, so an
// error is logged and not returned.
func (a *app) wake(ctx context.Context, db *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	if err := a.sendWake(ctx, db); err != nil {
		a.log.DebugContext(ctx, "cannot wake services that sleep", "error", err)
	}
}

func (a *app) sendWake(ctx context.Context, db *pgxpool.Pool) error {
	if a.config.natsURL == "" {
		_, err := natsclient.Wake(ctx, db)
		return err
	}
	nc, err := a.connectNATS(false, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	defer nc.Close()
	return natsclient.Publish(ctx, nc, stream.PrefixOf(nc).Wake(), nil)
}

// noUser returns the error of a login without the role of a user in the NATS server of serve.
func noUser(user string) error {
	f := failf(exitUnavailable, "the login may not use the NATS server of taskledger serve").
		hinted("grant the login the role %s of this database, or set %s", natsclient.RoleOf(user), envNATSURL)
	f.isNoUser = true
	return f
}

// findNATS connects to the NATS server that serve runs for the database. With wait, the server may begin later.
func (a *app) findNATS(wait bool, options ...nats.Option) (*nats.Conn, error) {
	if a.db == nil {
		return nil, a.errNoNATS()
	}
	ctx, cancel := context.WithTimeout(context.Background(), pgpool.ConnectTimeout)
	defer cancel()
	_, err := natsclient.Find(ctx, a.db, a.natsUser)
	missing, refused := (*natsclient.NotFoundError)(nil), (*natsclient.NoUserError)(nil)
	switch {
	case errors.As(err, &refused):
		return nil, noUser(a.natsUser)
	case err != nil && a.hasAnnouncedNATS():
		return nil, a.errNoNATS()
	case err != nil && !(wait && errors.As(err, &missing)):
		return nil, err
	}
	nc, err := natsclient.Connect(a.db, a.natsUser, append(options, nats.Name("taskledger"),
		nats.RetryOnFailedConnect(wait))...)
	unreachable := (*natsclient.UnreachableError)(nil)
	switch {
	case errors.As(err, &unreachable):
		return nil, unreachable
	case err != nil:
		return nil, failf(exitUnavailable, "cannot connect to the NATS server of taskledger serve: %s", reason(err)).
			hinted("%s", unreachable.Cure())
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
		if err := checkCA(c.natsCA); err != nil {
			return nil, usagef("%s: %s: %s", c.source(envNATSCA), c.natsCA, err).
				hinted("write the certificate of the CA that signed NATS's certificate to this file, in PEM form")
		}
		options = append(options, nats.RootCAs(c.natsCA))
	}
	if c.natsCert != "" {
		if _, err := tls.LoadX509KeyPair(c.natsCert, c.natsKey); err != nil {
			return nil, usagef("%s and %s: %s", c.source(envNATSCert), c.source(envNATSKey), err).
				hinted("write the client's certificate and its key, unencrypted, to these files, in PEM form")
		}
		options = append(options, nats.ClientCert(c.natsCert, c.natsKey))
	}
	return options, nil
}
