package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/taskledger/taskledger/internal/natsserver"
)

// brokerSettings are the settings of the broker that differ from nats-server's defaults.
type brokerSettings struct {
	Dir        string `json:"dir"`
	SyncAlways bool   `json:"sync_always"` // fsync before every acknowledgement
	Accounts   int    `json:"accounts"`    // number of accounts with JetStream; 0: the default account
}

type brokerAnswer struct {
	URLs []string `json:"urls"` // one for each account
}

// runBroker runs a NATS server with JetStream.
func runBroker(ctx context.Context, settings json.RawMessage, ready func(any)) error {
	var s brokerSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	if s.Accounts > 0 {
		return runAccounts(ctx, s, ready)
	}
	server, err := natsserver.Start(natsserver.Config{Dir: s.Dir, SyncAlways: s.SyncAlways})
	if err != nil {
		return err
	}
	ready(brokerAnswer{[]string{server.URL()}})
	<-ctx.Done()
	return server.Close()
}

// runAccounts runs a NATS server with several accounts: a stream belongs to one ledger.
func runAccounts(ctx context.Context, s brokerSettings, ready func(any)) error {
	var config strings.Builder
	// Streams reserve their limit, more than they use. Without max_file_store they get three quarters of the
	// free disk.
	fmt.Fprintf(&config, "host: 127.0.0.1\nport: -1\n"+
		"jetstream { store_dir: %q, sync_interval: 1s, max_file_store: 1TB }\naccounts {\n",
		filepath.Join(s.Dir, "store"))
	for i := range s.Accounts {
		fmt.Fprintf(&config, "  ledger%d { jetstream: enabled, users: [ { user: ledger%d, password: %q } ] }\n", i, i,
			s.Dir)
	}
	config.WriteString("}\n")
	file := filepath.Join(s.Dir, "nats.conf")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		return err
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	options.NoSigs, options.NoLog = true, true
	instance, err := server.NewServer(options)
	if err != nil {
		return err
	}
	instance.Start()
	defer func() { instance.Shutdown(); instance.WaitForShutdown() }()
	if !instance.ReadyForConnections(10 * time.Second) {
		return errors.New("not ready after 10s")
	}
	var answer brokerAnswer
	for i := range s.Accounts {
		user := url.UserPassword(fmt.Sprintf("ledger%d", i), s.Dir)
		u := url.URL{Scheme: "nats", User: user, Host: instance.Addr().String()}
		answer.URLs = append(answer.URLs, u.String())
	}
	ready(answer)
	<-ctx.Done()
	return nil
}
