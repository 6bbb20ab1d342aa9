package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

func (a *app) newImportCommand() *cobra.Command {
	return group(
		&cobra.Command{Use: "import", Short: "Move in from another outbox"},
		a.newImportWatermillCommand(),
	)
}

func (a *app) newImportWatermillCommand() *cobra.Command {
	var c outbox.ImportConfig
	var kind string
	cmd := &cobra.Command{
		Use:   "watermill TOPIC",
		Short: "Drain an outbox of watermill-sql into the ledger",
		Long: `Drain the table watermill_TOPIC, in the default PostgreSQL schema of watermill-sql, into the
ledger: each message becomes the task that publishing it here would have made. The import reads
as one of the outbox's consumer groups and moves it on in the transaction that enqueues, so it
may be stopped, killed and repeated at any time; nothing is lost and nothing comes twice. Old
producers and other groups may go on beside it. It ends when the outbox is drained, unless it is
to --follow. The tables are left as they are.`,
		Example: `  taskledger import watermill order.ship --group shipping --follow
  taskledger import watermill 'order:ship' --kind order.ship`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Topic, c.Kind = args[0], ledger.Kind(kind)
			return a.importWatermill(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&c.Group, "group", "", "consumer group whose place to take (default: the empty one, watermill-sql's own default)")
	cmd.Flags().StringVar(&kind, "kind", "", "kind of the tasks (default: TOPIC)")
	cmd.Flags().StringVar(&c.Schema, "schema", "", "schema of the outbox's tables (default: as the search_path has it)")
	cmd.Flags().StringVar(&c.Actor, "actor", "", "who enqueues (default: the database user)")
	cmd.Flags().IntVar(&c.Batch, "batch", outbox.DefaultImportBatch, "messages in one transaction")
	cmd.Flags().BoolVar(&c.Follow, "follow", false, "go on when the outbox is drained, until interrupted")
	return cmd
}

func (a *app) importWatermill(ctx context.Context, c outbox.ImportConfig) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	c.DB = pool
	if err := c.Validate(); err != nil {
		return usagef("%s", err)
	}
	done, err := outbox.Import(ctx, c)
	if printing := a.print(done, func(w io.Writer) {
		fmt.Fprintf(w, "imported %d messages; %d of them were tasks already\n", done.Messages, done.Existing)
	}); err == nil {
		err = printing
	}
	var failed *outbox.ImportError
	var conflict *ledger.ConflictError
	if errors.As(err, &failed) {
		exit := exitFailed
		if errors.As(err, &conflict) {
			exit = exitConflict
		}
		return failf(exit, "%s", err).hinted("what came before it is imported; mend or remove this row, and import again")
	}
	return err
}
