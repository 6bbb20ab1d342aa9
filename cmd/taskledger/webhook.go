package main

import (
	"context"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/services"
)

func newServeWebhooksCommand(a *app) *cobra.Command {
	var file, place string
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Send events to the receivers of a file",
		Long: `Send events to the receivers of a file, signed by Standard Webhooks: docs/webhooks.md. Each receiver
NAME is a subscriber, webhook-NAME, and each delivery a task of kind taskledger.webhook.NAME, so that the other
commands show, pause, move, release and bury them. Several processes may run with the same file. Events of archived
tasks are read from their files.

In NATS it is the user worker, in the database a login with the roles producer, subscriber and worker.`,
		Example: "  taskledger serve webhooks --webhooks webhooks.yaml\n" +
			"  taskledger seek subscriber webhook-shop --position 4711 --reason 'the shop lost them'\n" +
			"  taskledger show dead --kind taskledger.webhook.shop",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("%s: --webhooks is required", cmd.CommandPath()).
					hinted("set --webhooks or TASKLEDGER_WEBHOOKS")
			}
			text, err := a.readJSON(file)
			if err != nil {
				return err
			}
			f, err := webhooks.Parse(text)
			if err != nil {
				return err
			}
			a.natsUser = natsconfig.Worker
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				o := &services.WebhookOptions{Archive: a.archive(place), Logger: a.log.With("service", "webhook")}
				return serveWebhooks(ctx, a, pool, f, text, o)
			})
		},
	}
	cmd.Flags().StringVar(&file, "webhooks", "", "`file` with the receivers: docs/webhooks.md")
	bind(cmd.Flags(), "webhooks", "TASKLEDGER_WEBHOOKS")
	addArchiveFlag(cmd, &place)
	return cmd
}

// readPush returns a file of kinds whose tasks are sent as JSON; nil without a file.
func (a *app) readPush(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := a.readJSON(file)
	if err != nil {
		return nil, err
	}
	if _, err := webhooks.ParsePush(text); err != nil {
		return nil, err
	}
	return text, nil
}

func serveWebhooks(
	ctx context.Context, a *app, pool *pgxpool.Pool, f webhooks.File, text []byte, o *services.WebhookOptions,
) error {
	nc, err := a.connectNATS(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	var answer struct {
		Receivers []string `json:"receivers"`
	}
	for _, r := range f.Receivers {
		answer.Receivers = append(answer.Receivers, r.Name)
	}
	if err := a.print(answer, func(w io.Writer) {
		for _, name := range answer.Receivers {
			renderFields(w, [2]string{"receiver", name}, [2]string{"subscriber", webhooks.Subscriber(name)},
				[2]string{"deliveries", string(webhooks.Kind(name))})
		}
	}); err != nil {
		return err
	}
	return services.SendWebhooks(ctx, pool, nc, text, o)
}
