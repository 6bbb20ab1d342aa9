package main

import (
	"context"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/served"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

func newServeSubscriberCommand(a *app) *cobra.Command {
	var kinds, types []string
	var isNow bool
	var place string
	var c served.Config
	cmd := &cobra.Command{
		Use:   "subscriber NAME",
		Short: "Publish the events of a subscriber on a stream of its own",
		Long: `Publish the events from the place of a subscriber on, so that its program needs only a NATS client. The
program receives them from the consumer NAME of the stream SUBSCRIBER_NAME and acknowledges each message. Subjects are
subscriber.NAME.<shard>.<type>.<kind>; docs/events.md describes the messages.

The subscriber passes an event when the program has acknowledged it. Messages that NATS loses are published again, and
an event may come twice after a crash of this process. Several processes may run: they stand by for each other.
Events of archived tasks are read from their files.

In NATS it is the user NAME-server of taskledger nats-config --served NAME, in the database the role subscriber.`,
		Example: "  taskledger serve subscriber orders --kind order.ship --type succeeded",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Name = args[0]
			for _, kind := range kinds {
				c.Kinds = append(c.Kinds, ledger.Kind(kind))
			}
			for _, t := range types {
				c.Types = append(c.Types, ledger.EventType(t))
			}
			if isNow {
				c.From = feed.Now()
			}
			c.Archive = a.archive(place)
			a.natsUser = natsconfig.ServerOf(natsconfig.Served)
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return serveSubscriber(ctx, a, pool, c)
			})
		},
	}
	cmd.Flags().StringArrayVar(&kinds, "kind", nil, "`kind` of the events (default: all but taskledger.*)")
	cmd.Flags().StringArrayVar(&types, "type", nil, "`type` of the events (default: all)")
	cmd.Flags().BoolVar(&isNow, "now", false, "begin at the present if the subscriber does not exist")
	cmd.Flags().IntVar(&c.InFlight, "in-flight", 0,
		"messages that a new consumer may deliver before the first is acknowledged; 1: strict order (default: 500)")
	cmd.Flags().IntVar(&c.Replicas, "stream-replicas", 0, "replicas of a new stream (default: 1)")
	refuseZero(cmd.Flags(), "in-flight", "stream-replicas")
	addArchiveFlag(cmd, &place)
	return cmd
}

func serveSubscriber(ctx context.Context, a *app, pool *pgxpool.Pool, c served.Config) error {
	nc, err := a.connectNATS(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	c.DB, c.NATS, c.Logger = pool, nc, a.log.With("service", "subscriber")
	if err := served.Validate(c); err != nil {
		return err
	}
	answer := struct {
		Subscriber string `json:"subscriber"`
		Stream     string `json:"stream"`
		Consumer   string `json:"consumer"`
	}{c.Name, stream.PrefixOf(nc).ServedStream(c.Name), c.Name}
	if err := a.print(answer, func(w io.Writer) {
		renderFields(w, [2]string{"subscriber", answer.Subscriber}, [2]string{"stream", answer.Stream},
			[2]string{"consumer", answer.Consumer}, [2]string{"running", "stop with Ctrl-C"})
	}); err != nil {
		return err
	}
	return served.Run(ctx, c)
}
