package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/stream"
)

// Environment variables of the flags that every command accepts. For any other flag X-Y with an environment variable,
// it is TASKLEDGER_X_Y.
const (
	envDatabaseURL = "DATABASE_URL"
	envNATSURL     = "NATS_URL"
	envNATSCreds   = "NATS_CREDS"
	envNATSNkey    = "NATS_NKEY"
	envNATSCA      = "NATS_CA"
	envNATSCert    = "NATS_CERT"
	envNATSKey     = "NATS_KEY"
	envNATSPrefix  = "TASKLEDGER_NATS_PREFIX"
	envDataDir     = "TASKLEDGER_DATA"
	envLedger      = "TASKLEDGER_LEDGER"
	envLedgers     = "TASKLEDGER_LEDGERS"
	envOutput      = "TASKLEDGER_OUTPUT"
	envLogFormat   = "TASKLEDGER_LOG_FORMAT"
	envLogLevel    = "TASKLEDGER_LOG_LEVEL"
)

// config contains the flags of every command. A value comes from its flag, else from its environment variable, else
// from the servers that run in the data directory, else from its default. A flag for the data directory selects the
// servers there, whatever addresses the environment contains, and a ledger the addresses in the file of ledgers.
type config struct {
	ledger      string
	databaseURL string
	natsURL     string
	natsCreds   string
	natsNkey    string
	natsCA      string
	natsCert    string
	natsKey     string
	natsPrefix  string
	dataDir     string
	output      format
	logFormat   logFormat
	logLevel    slog.Level

	dataDirGiven bool              // by a flag
	flagOf       map[string]string // the flags on the command line, by their environment variable
}

func (c *config) addFlags(flags *pflag.FlagSet) {
	c.output = formatTable
	flags.StringVar(&c.ledger, "ledger", "", "`name` of a ledger in the file $"+envLedgers)
	flags.StringVar(&c.databaseURL, "database-url", "", "address of PostgreSQL")
	flags.StringVar(&c.natsURL, "nats-url", "", "address of NATS")
	flags.StringVar(&c.natsCreds, "nats-creds", "", "`file` with NATS credentials")
	flags.StringVar(&c.natsNkey, "nats-nkey", "", "`file` with the seed of a NATS user's key")
	flags.StringVar(&c.natsCA, "nats-ca", "", "`file` of the CA of the NATS server's certificate")
	flags.StringVar(&c.natsCert, "nats-cert", "", "`file` of a certificate for NATS")
	flags.StringVar(&c.natsKey, "nats-key", "", "`file` of its key")
	flags.StringVar(&c.natsPrefix, "nats-prefix", "",
		"`prefix` of the subjects of one of several ledgers in an account")
	flags.StringVar(&c.dataDir, "data-dir", "", "`directory` of the servers that taskledger runs")
	flags.VarP(&c.output, "output", "o", "table, json or jsonl")
	c.logFormat = logText
	flags.Var(&c.logFormat, "log-format", "text or json")
	flags.Var((*logLevel)(&c.logLevel), "log-level", "debug, info, warn or error")
	bind(flags, "ledger", envLedger)
	refuseZero(flags, "ledger") // the addresses of the environment would count
	bind(flags, "log-format", envLogFormat)
	bind(flags, "log-level", envLogLevel)
	bind(flags, "database-url", envDatabaseURL)
	bind(flags, "nats-url", envNATSURL)
	bind(flags, "nats-creds", envNATSCreds)
	bind(flags, "nats-nkey", envNATSNkey)
	bind(flags, "nats-ca", envNATSCA)
	bind(flags, "nats-cert", envNATSCert)
	bind(flags, "nats-key", envNATSKey)
	bind(flags, "nats-prefix", envNATSPrefix)
	bind(flags, "data-dir", envDataDir)
	bind(flags, "output", envOutput)
}

// environment is the annotation of a flag with the name of its environment variable.
const environment = "environment"

// bind connects a flag with an environment variable, and adds that to its help.
func bind(flags *pflag.FlagSet, name, variable string) {
	f := flags.Lookup(name)
	f.Usage += " [$" + variable + "]"
	annotate(f, environment, variable)
}

func annotate(f *pflag.Flag, name string, values ...string) {
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[name] = values
}

// refusesZero is the annotation of a flag that must not be given with its zero value.
const refusesZero = "refuses zero"

// refuseZero marks flags whose zero value, 0 or "", means that they are not given. A user who types it, or a script
// with an empty variable, means something else.
func refuseZero(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(flags.Lookup(name), refusesZero)
	}
}

// checkZero returns an error if a flag was explicitly set to its zero value and refuses it.
func checkZero(name string, f *pflag.Flag) error {
	_, refuses := f.Annotations[refusesZero]
	switch value := f.Value.String(); {
	case refuses && value == "":
		return usagef("%s must not be empty", name).hinted("leave it out for its default")
	case refuses && (value == "0" || value == "0s"):
		return usagef("%s must not be 0", name).hinted("leave it out for its default")
	}
	return nil
}

// read completes the flags that were not given from the environment.
func (c *config) read(flags *pflag.FlagSet, getenv func(string) string) (err error) {
	c.dataDirGiven = flags.Changed("data-dir")
	c.flagOf = make(map[string]string)
	flags.VisitAll(func(f *pflag.Flag) {
		for _, variable := range f.Annotations[environment] {
			if f.Changed {
				c.flagOf[variable] = "--" + f.Name
			}
		}
		if f.Changed && err == nil {
			err = checkZero("--"+f.Name, f)
		}
		if c.dataDirGiven && (f.Name == "database-url" || strings.HasPrefix(f.Name, "nats-")) {
			return
		}
		for _, variable := range f.Annotations[environment] {
			value := getenv(variable)
			if value == "" || f.Changed || err != nil {
				continue
			}
			if wrong := f.Value.Set(value); wrong != nil {
				err = usagef("%s: %s", variable, wrongValue(f, value, wrong))
			} else {
				err = checkZero(variable, f)
			}
		}
	})
	if err == nil && c.ledger != "" {
		err = c.useLedger(getenv)
	}
	if err == nil {
		err = c.checkPrefix()
	}
	if err != nil {
		return err
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

// checkPrefix returns an error if the prefix is invalid, or if there is no account that several ledgers share.
func (c *config) checkPrefix() error {
	if err := stream.Prefix(c.natsPrefix).Validate(); err != nil {
		return usagef("%s: %s", c.source(envNATSPrefix), err)
	}
	if c.natsPrefix != "" && c.natsURL == "" {
		return usagef("%s needs %s", c.source(envNATSPrefix), envNATSURL).
			hinted("leave the prefix out: the NATS server of taskledger serve has one ledger")
	}
	return nil
}

// source returns the flag that has set a value, else its environment variable.
func (c *config) source(variable string) string {
	if flag, ok := c.flagOf[variable]; ok {
		return flag
	}
	return variable
}

// locate completes the addresses from the servers that run in the data directory, if neither was given. It
// never mixes a given address with one of theirs.
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
	a.config.use(servers.DatabaseURL, servers.NATSURLs[a.natsUser])
	return nil
}

// use sets the addresses of servers that taskledger runs, whose credentials are in the addresses.
func (c *config) use(databaseURL, natsURL string) {
	c.databaseURL, c.natsURL = databaseURL, natsURL
	c.natsCreds, c.natsNkey, c.natsCA, c.natsCert, c.natsKey = "", "", "", "", ""
}

// errNoDatabase returns the error of a missing database address.
func (a *app) errNoDatabase() error {
	if a.config.natsURL != "" {
		return failf(exitUnavailable, "no database: %s is set and %s is not", a.config.source(envNATSURL),
			envDatabaseURL).
			hinted("set both, or neither for the servers of taskledger serve on this machine")
	}
	if a.config.dataDirGiven {
		return failf(exitUnavailable, "no server is running in %s", a.config.dataDir).
			hinted("start one: taskledger serve --data-dir %s", a.config.dataDir)
	}
	return failf(exitUnavailable, "no database: %s is not set, and no server is running in %s", envDatabaseURL,
		a.config.dataDir).
		hinted("set %s, or start one: taskledger serve, or for a first look: taskledger demo", envDatabaseURL)
}

// errNoNATS returns the error of a missing address of NATS.
func (a *app) errNoNATS() error {
	f := failf(exitUnavailable, "%s is not set", envNATSURL).hinted("set %s", envNATSURL)
	if a.hasAnnouncedNATS() {
		f.hint = fmt.Sprintf("set %s too, or neither it nor %s for the servers that run in %s", envNATSURL,
			envDatabaseURL, a.config.dataDir)
	}
	return f
}

// hasAnnouncedNATS reports whether the servers in the data directory announce a NATS server that cannot be found
// through the database. Only a demo's servers do.
func (a *app) hasAnnouncedNATS() bool {
	servers, err := embedded.Attach(a.config.dataDir)
	return err == nil && len(servers.NATSURLs) > 0
}
