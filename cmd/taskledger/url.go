package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/natsconfig"
)

const (
	databaseObject = "database"
	natsObject     = "nats"
)

func newURLCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "url",
		Short: "Print the address of the database, or of NATS",
		Long: `Print the address of the database that the other commands use: of --database-url or $DATABASE_URL, else
of the server that serve or demo runs on this machine. It does not connect to it.

Or print the address of the NATS server that serve runs for the database, with a user and its password, for programs
that do not find it by themselves. The login of the command needs the role of the user:

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
		Example: "  export DATABASE_URL=$(taskledger url database)\n" +
			"  NATS_URL=$(taskledger url nats) ./worker\n" +
			"  nats --server \"$(taskledger url nats admin)\" stream info LEDGER",
		Args: objectArgs(func(cmd *cobra.Command, object string, args []string) error {
			if object == databaseObject {
				return exactArgs(0)(cmd, args)
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if object, err := findObject(cmd, args[0]); err != nil || object == databaseObject {
				return printDatabaseURL(a)
			}
			user := natsconfig.Worker
			if len(args) > 1 {
				user = args[1]
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
	takesObjects(cmd, databaseObject, natsObject)
	return cmd
}

func printDatabaseURL(a *app) error {
	if err := a.locate(); err != nil {
		return err
	}
	if a.config.databaseURL == "" {
		return a.errNoDatabase()
	}
	answer := struct {
		URL string `json:"url"`
	}{a.config.databaseURL}
	return a.print(answer, func(w io.Writer) { fmt.Fprintln(w, answer.URL) })
}
