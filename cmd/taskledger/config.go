package main

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/taskledger/taskledger/internal/embedded"
)

// Environment variables, one for each of the flags that every command has.
const (
	envDatabaseURL = "DATABASE_URL"
	envNATSURL     = "NATS_URL"
	envNATSCreds   = "NATS_CREDS"
	envDataDir     = "TASKLEDGER_DATA"
	envOutput      = "TASKLEDGER_OUTPUT"
)

// config is what every command may be told: by a flag, else by its environment variable, else by
// the servers that run in the data directory, else by default.
type config struct {
	databaseURL string
	natsURL     string
	natsCreds   string
	dataDir     string
	output      format
}

func (c *config) addFlags(flags *pflag.FlagSet) {
	c.output = formatTable
	flags.StringVar(&c.databaseURL, "database-url", "", "address of PostgreSQL [$"+envDatabaseURL+"]")
	flags.StringVar(&c.natsURL, "nats-url", "", "address of NATS [$"+envNATSURL+"]")
	flags.StringVar(&c.natsCreds, "nats-creds", "", "`file` with NATS credentials [$"+envNATSCreds+"]")
	flags.StringVar(&c.dataDir, "data-dir", "", "`directory` of servers of our own [$"+envDataDir+"]")
	flags.VarP(&c.output, "output", "o", "table, json or jsonl [$"+envOutput+"]")
}

// read completes the flags from the environment.
func (c *config) read(flags *pflag.FlagSet, getenv func(string) string) error {
	for name, variable := range map[string]string{
		"database-url": envDatabaseURL,
		"nats-url":     envNATSURL,
		"nats-creds":   envNATSCreds,
		"data-dir":     envDataDir,
		"output":       envOutput,
	} {
		value := getenv(variable)
		if value == "" || flags.Changed(name) {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return usagef("%s: %s", variable, errors.Unwrap(err))
		}
	}
	if c.dataDir == "" {
		dir, err := embedded.DefaultDir()
		if err != nil {
			return usagef("%s", err).hinted("name a data directory with --data-dir or %s", envDataDir)
		}
		c.dataDir = dir
	}
	return nil
}

// locate completes the addresses from the servers that run in the data directory, if neither was
// given: an address that was given is never mixed with one found.
func (a *app) locate() error {
	defer func() {
		a.secrets.learnAddress(a.config.databaseURL)
		a.secrets.learnAddress(a.config.natsURL)
	}()
	if a.config.databaseURL != "" || a.config.natsURL != "" {
		return nil
	}
	servers, err := embedded.Attach(a.config.dataDir)
	if errors.Is(err, embedded.ErrNotRunning) {
		return nil
	}
	if err != nil {
		return failf(exitUnavailable, "attach to the servers in %s: %s", a.config.dataDir, err).
			hinted("run as the user who started them, or set %s", envDatabaseURL)
	}
	a.config.databaseURL, a.config.natsURL = servers.DatabaseURL, servers.NATSURL
	return nil
}

// errNoDatabase says that nobody told us where the database is.
func (a *app) errNoDatabase() error {
	return failf(exitUnavailable, "no database: %s is not set, and no server is running in %s", envDatabaseURL, a.config.dataDir).
		hinted("set %s, or start one: taskledger serve, or for a first look: taskledger demo", envDatabaseURL)
}
