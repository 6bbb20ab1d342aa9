package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/movein"
	"github.com/taskledger/taskledger/ledger"
)

func newImportCommand(a *app) *cobra.Command {
	return group(
		&cobra.Command{Use: "import", Short: "Import an archive, or migrate from another outbox"},
		newImportArchiveCommand(a), newImportWatermillCommand(a),
	)
}

func newImportWatermillCommand(a *app) *cobra.Command {
	var c movein.Config
	var kind string
	cmd := &cobra.Command{
		Use:   "watermill TOPIC",
		Short: "Drain an outbox of watermill-sql into the ledger",
		Long: `Drain the table watermill_TOPIC, in the default PostgreSQL schema of watermill-sql, into the
ledger: each message becomes the task that publishing it here would have made. The import reads
as one of the outbox's consumer groups and moves it on in the transaction that enqueues, so it
may be stopped, killed and repeated at any time: no message is lost or imported twice. Old
producers and other groups may run at the same time. It ends when the outbox is drained, unless
--follow is set. It does not change the table of messages.`,
		Example: `  taskledger import watermill order.ship --group shipping --follow
  taskledger import watermill 'order:ship' --kind order.ship`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Topic, c.Kind = args[0], ledger.Kind(kind)
			return importWatermill(cmd.Context(), a, c)
		},
	}
	cmd.Flags().StringVar(&c.Group, "group", "",
		"consumer group to read as (default: the empty one, as in watermill-sql)")
	cmd.Flags().StringVar(&kind, "kind", "", "kind of the tasks (default: TOPIC)")
	cmd.Flags().StringVar(&c.Schema, "schema", "", "schema of the outbox's tables (default: by the search_path)")
	addActorFlag(cmd, &c.Actor)
	cmd.Flags().IntVar(&c.Batch, "batch", movein.DefaultBatch, "messages in one transaction")
	refuseZero(cmd.Flags(), "kind", "schema", "batch")
	cmd.Flags().BoolVar(&c.Follow, "follow", false,
		"wait for more messages when the outbox is drained, until interrupted")
	return cmd
}

func importWatermill(ctx context.Context, a *app, c movein.Config) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	c.DB, c.Actor = pool, actorOr(c.Actor)
	if err := c.Validate(); err != nil {
		return usagef("%s", err)
	}
	done, err := movein.Run(ctx, c)
	if printing := a.print(done, func(w io.Writer) {
		fmt.Fprintf(w, "imported %d messages; %d of them were tasks already\n", done.Messages, done.Existing)
	}); err == nil {
		err = printing
	}
	var failed *movein.MessageError
	var other *ledger.OtherArgsError
	if errors.As(err, &failed) {
		exit := exitFailed
		if errors.As(err, &other) {
			exit = exitConflict
		}
		return failf(exit, "%s", err).
			hinted("the messages before it are imported; mend or remove this row, and import again")
	}
	return err
}
