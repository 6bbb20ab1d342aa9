package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
)

// natsUsers are the users of the NATS server of serve that programs may be.
var natsUsers = []string{
	natsconfig.Worker, natsconfig.Operator, natsconfig.Waiter, natsconfig.Subscriber, natsconfig.Served,
	natsconfig.Admin, natsconfig.Relay,
}

func newNATSURLCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "nats [USER]",
		Short: "Print the address of the NATS server of serve, with the password of a user",
		Long: `Print the address of the NATS server that serve runs for the database, with a user and its password,
for programs that do not find it by themselves. The login of the command needs the role of the user:

  worker      role worker: workers of every kind. The default
  operator    role operator: the commands of taskledger
  waiter      role producer: programs that wait for results
  subscriber  role subscriber: one subscriber, by the consumer "subscriber"
  served      role subscriber: the programs of subscribers that taskledger serve subscriber serves
  relay       role relay: the services of serve
  admin       role relay: everything in the account of the stream, for the command nats

The address changes when another process begins to run the server. The password stays the same.

With -o json the answer contains the parts of the address, and the CA of a server outside of loopback. There a client
begins TLS at once (with nats.go: TLSHandshakeFirst), and expects the certificate of tls_name.`,
		Example: "  NATS_URL=$(taskledger url nats) ./worker\n" +
			"  nats --server \"$(taskledger url nats admin)\" stream info LEDGER",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: natsUsers,
		RunE: func(cmd *cobra.Command, args []string) error {
			user := natsconfig.Worker
			if len(args) > 0 {
				user = args[0]
			}
			if !slices.Contains(natsUsers, user) {
				return usagef("there is no user %q", user).hinted("one of: %s", strings.Join(natsUsers, ", "))
			}
			a.natsUser = user
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return printNATSURL(ctx, a, pool)
			})
		},
	}
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
