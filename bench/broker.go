package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/outbox"
)

// brokerSettings are the settings of the broker that differ from nats-server's defaults.
type brokerSettings struct {
	Dir        string `json:"dir"`
	SyncAlways bool   `json:"sync_always"` // fsync before every acknowledgement
	Accounts   int    `json:"accounts"`    // number of accounts with JetStream; 0: the default account
	Members    int    `json:"members"`     // servers of a cluster, all in one process; 0: one server
}

type brokerAnswer struct {
	URLs []string `json:"urls"` // one for each account; a cluster has one with all members
}

// runBroker runs a NATS server with JetStream.
func runBroker(ctx context.Context, settings json.RawMessage, ready func(any)) error {
	var s brokerSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	switch {
	case s.Accounts > 0:
		return runAccounts(ctx, s, ready)
	case s.Members > 0:
		return runCluster(ctx, s, ready)
	}
	server, err := natsserver.Start(natsserver.Config{Dir: s.Dir, SyncAlways: s.SyncAlways})
	if err != nil {
		return err
	}
	ready(brokerAnswer{[]string{server.URL()}})
	<-ctx.Done()
	return server.Close()
}

// runCluster runs all members of a cluster. It is ready when it can create a stream with a replica on each member.
func runCluster(ctx context.Context, s brokerSettings, ready func(any)) (err error) {
	var ports []int
	var peers, urls []string
	for range s.Members {
		port, err := reserve.Port()
		if err != nil {
			return err
		}
		ports = append(ports, port)
		peers = append(peers, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	for i, port := range ports {
		self := fmt.Sprintf("member-%d", i)
		member, failed := natsserver.Start(natsserver.Config{
			Dir: filepath.Join(s.Dir, self), Token: "bench", SyncAlways: s.SyncAlways,
			Cluster: &natsserver.Cluster{Name: "bench", Self: self, Host: "127.0.0.1", Port: port, Peers: peers},
		})
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, member.Close()) }()
		urls = append(urls, member.URL())
	}
	address := strings.Join(urls, ",")
	if err := awaitReplicas(ctx, address, s.Members); err != nil {
		return err
	}
	ready(brokerAnswer{[]string{address}})
	<-ctx.Done()
	return nil
}

// awaitReplicas waits until the cluster can create a stream with this number of replicas.
func awaitReplicas(ctx context.Context, address string, replicas int) error {
	nc, err := outbox.Connect(address)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var last error
	err = await(ctx, func() (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, last = js.CreateStream(attempt, jetstream.StreamConfig{Name: "ready", Replicas: replicas})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the cluster cannot create a stream with %d replicas: %w", replicas, errors.Join(err, last))
	}
	return js.DeleteStream(ctx, "ready")
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
