package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
)

// natsUsers are the users of the NATS server of serve that programs may be.
var natsUsers = []string{
	natsconfig.Worker, natsconfig.Operator, natsconfig.Waiter, natsconfig.Subscriber, natsconfig.Served,
	natsconfig.Admin, natsconfig.Relay,
}

// natsAddress is the answer of url nats.
type natsAddress struct {
	URL      string   `json:"url"`
	Servers  []string `json:"servers"` // host and port
	User     string   `json:"user"`
	Password string   `json:"password"`
	CA       string   `json:"ca,omitempty"`       // PEM
	TLSName  string   `json:"tls_name,omitempty"` // of its certificate
}

func printNATSURL(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	if servers, err := embedded.Attach(a.config.dataDir); err == nil && servers.NATSURLs != nil &&
		servers.DatabaseURL == a.config.databaseURL {
		return a.print(natsAddress{URL: servers.NATSURLs[a.natsUser]}, func(w io.Writer) {
			fmt.Fprintln(w, servers.NATSURLs[a.natsUser])
		})
	}
	servers, err := natsclient.FindAll(ctx, pool, a.natsUser)
	if refused := (*natsclient.NoUserError)(nil); errors.As(err, &refused) {
		return noUser(a.natsUser)
	}
	if err != nil {
		return err
	}
	answer := natsAddress{User: servers[0].User, Password: servers[0].Password, CA: servers[0].CA}
	if answer.CA != "" {
		answer.TLSName = natsclient.ServerName
	}
	var urls []string
	for _, s := range servers {
		answer.Servers = append(answer.Servers, s.Address)
		urls = append(urls, s.URL())
	}
	answer.URL = strings.Join(urls, ",")
	return a.print(answer, func(w io.Writer) { fmt.Fprintln(w, answer.URL) })
}
