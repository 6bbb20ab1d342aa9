package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/taskledger/taskledger/internal/console"
)

// ledgerAddress is where a ledger is, in the file of ledgers.
type ledgerAddress struct {
	DatabaseURL string `yaml:"database-url"`
	NATSURL     string `yaml:"nats-url"` // "": the NATS server of serve
	NATSPrefix  string `yaml:"nats-prefix"`
}

// useLedger sets the addresses of the ledger that --ledger names. Those in the environment do not count.
func (c *config) useLedger(getenv func(string) string) error {
	for _, other := range []string{envDatabaseURL, envNATSURL, envNATSPrefix, envDataDir} {
		if flag, isGiven := c.flagOf[other]; isGiven {
			return usagef("--ledger and %s exclude each other", flag).
				hinted("the file of ledgers contains the addresses of %s", c.ledger)
		}
	}
	name, err := ledgersFile(getenv)
	if err != nil {
		return err
	}
	all, err := readLedgers(name)
	if err != nil {
		return err
	}
	found, exists := all[c.ledger]
	if !exists {
		names := slices.Sorted(maps.Keys(all))
		f := usagef("%s has no ledger %q", name, c.ledger)
		if similar := suggestOf(names, c.ledger); similar != "" {
			return f.hinted("did you mean %s?", similar)
		}
		return f.hinted("it has %s", orNone(strings.Join(names, ", ")))
	}
	c.databaseURL, c.natsURL, c.natsPrefix = found.DatabaseURL, found.NATSURL, found.NATSPrefix
	return nil
}

// ledgersFile returns the name of the file of ledgers.
func ledgersFile(getenv func(string) string) (string, error) {
	if name := getenv(envLedgers); name != "" {
		return name, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", usagef("no file of ledgers: %s", err).hinted("set %s", envLedgers)
	}
	return filepath.Join(dir, "taskledger", "ledgers.yaml"), nil
}

// readLedgers reads a file of ledgers. It contains passwords, so only its owner may read it.
func readLedgers(name string) (all map[string]ledgerAddress, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("there is no file of ledgers %s", name).
			hinted("write one with lines as shop: {database-url: postgres://…}, or set %s", envLedgers)
	}
	if err != nil {
		return nil, usagef("the file of ledgers: %s", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, usagef("the file of ledgers: %s", err)
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, usagef("other users may read %s, which contains passwords", name).hinted("chmod 600 %s", name)
	}
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil { // its text could quote a password
		return nil, usagef("%s is not a file of ledgers", name).
			hinted("each line is as shop: {database-url: postgres://…, nats-url: nats://…, nats-prefix: shop}; " +
				"nats-url and nats-prefix may be left out")
	}
	at := make(map[string]string) // the ledger with an address
	onNATS := make(map[ledgerAddress]string)
	for _, ledger := range slices.Sorted(maps.Keys(all)) {
		if err := console.CheckLedgerName(ledger); err != nil {
			return nil, usagef("%s: %s", name, err)
		}
		address := all[ledger].DatabaseURL
		if address == "" {
			return nil, usagef("%s: %s has no database-url", name, ledger)
		}
		if other, exists := at[address]; exists {
			return nil, usagef("%s: %s and %s have one database-url", name, other, ledger).
				hinted("a database has one ledger")
		}
		at[address] = ledger
		if err := all[ledger].checkNATS(ledger, onNATS); err != nil {
			err.message = name + ": " + err.message
			return nil, err
		}
	}
	return all, nil
}

// checkNATS returns an error if the ledger has the address and the prefix in NATS of another one in known, to which it
// adds them.
func (l ledgerAddress) checkNATS(name string, known map[ledgerAddress]string) *failure {
	if l.NATSURL == "" {
		return nil
	}
	on := ledgerAddress{NATSURL: l.NATSURL, NATSPrefix: l.NATSPrefix}
	if other, exists := known[on]; exists {
		return usagef("%s and %s have one nats-url and one nats-prefix", other, name).
			hinted("give one of them another nats-prefix, or another NATS account")
	}
	known[on] = name
	return nil
}
