package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// nodes is the number of NATS servers, and of replicas of the stream.
const nodes = 3

// nodeConfig is the configuration of one NATS server of the cluster.
type nodeConfig struct {
	Client, Route int // ports
	Routes        []string
	Store         string
	Accounts      string
}

// runNode is the program of a NATS server.
func runNode(ctx context.Context, p *part) error {
	o := &server.Options{
		ServerName: p.Name, Host: "127.0.0.1", Port: p.Node.Client, NoSigs: true,
		JetStream: true, DisableJetStreamBanner: true, StoreDir: p.Node.Store, SyncInterval: time.Second,
		JetStreamMaxStore: 2 * streamBytes, // the disk may have less
		Cluster: server.ClusterOpts{
			Name: "torture", Host: "127.0.0.1", Port: p.Node.Route, NoAdvertise: true, PoolSize: -1,
		},
	}
	if err := o.ProcessConfigString(p.Node.Accounts); err != nil {
		return err
	}
	for _, route := range p.Node.Routes {
		u, err := url.Parse(route)
		if err != nil {
			return err
		}
		o.Routes = append(o.Routes, u)
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return errors.New("not ready after a minute")
	}
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("nats-%d", i+1) }
