package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

// enqueueFlags are the options of enqueue.
type enqueueFlags struct {
	args   string
	binary bool
	shard  int
	actor  string
	tags   []string
	runAt  string
}

func (a *app) newEnqueueCommand() *cobra.Command {
	var f enqueueFlags
	cmd := &cobra.Command{
		Use:   "enqueue KIND BIZ_ID",
		Short: "Enqueue a task, or find that it exists",
		Long: `Enqueue a task, in a transaction of its own. KIND and BIZ_ID name one task for ever: if it
exists, nothing is written, and it is shown as it is. Only if it exists with other args is
that a conflict (exit code 4).`,
		Example: `  taskledger enqueue coupon.send order-17 --args '{"percent":10}'
  taskledger enqueue report.make 2026-11 --args @report.json --actor alice --tag monthly
  generate | taskledger enqueue import.run 42 --args -`,
		Args: exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key := ledger.Key{Kind: ledger.Kind(args[0]), BizID: ledger.BizID(args[1])}
			if cmd.Flags().Changed("run-at") {
				return usagef("--run-at is not supported by this version").hinted("enqueue the task when it is due")
			}
			return a.enqueue(cmd.Context(), key, f, cmd.Flags().Changed("shard"))
		},
	}
	cmd.Flags().StringVar(&f.args, "args", "", "input of the task as `JSON`, or @file, or - for stdin (default: none)")
	cmd.Flags().BoolVar(&f.binary, "binary", false, "args are bytes and not JSON")
	cmd.Flags().IntVar(&f.shard, "shard", 0, "shard, 0 to 63 (default: hash of BIZ_ID)")
	cmd.Flags().StringVar(&f.actor, "actor", "", "who enqueues (default: the database user)")
	cmd.Flags().StringArrayVar(&f.tags, "tag", nil, "tag in the task's meta; may be repeated")
	cmd.Flags().StringVar(&f.runAt, "run-at", "", "not supported by this version")
	_ = cmd.Flags().MarkHidden("run-at") // the flag exists
	return cmd
}

func (a *app) enqueue(ctx context.Context, key ledger.Key, f enqueueFlags, sharded bool) error {
	if err := key.Validate(); err != nil {
		return err
	}
	args, err := a.readArgs(f.args)
	if err != nil {
		return err
	}
	options := ledger.EnqueueOptions{Actor: f.actor, Binary: f.binary, Meta: ledger.Meta{Tags: f.tags}}
	if sharded {
		shard := ledger.Shard(f.shard)
		options.Shard = &shard
	}
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	answer, err := ledger.Enqueue(ctx, pool, key, args, &options)
	if err != nil {
		return err
	}
	if err := a.print(enqueued{key, answer}, func(w io.Writer) {
		if answer.New {
			fmt.Fprintf(w, "enqueued %s\n", plain(key.String()))
		} else {
			fmt.Fprintf(w, "%s exists: it is %s, at version %d\n", plain(key.String()), answer.State, answer.Version)
		}
	}); err != nil {
		return err
	}
	if !answer.New && !answer.SameArgs {
		return failf(exitConflict, "%s exists with other args; nothing was changed", key).
			hinted("a key names one task for ever: look at it with taskledger task show, or choose another BIZ_ID")
	}
	return nil
}

// enqueued is the answer as JSON.
type enqueued struct {
	ledger.Key
	ledger.Enqueued
}

// readArgs reads args from where the flag says.
func (a *app) readArgs(flag string) (json.RawMessage, error) {
	file, named := strings.CutPrefix(flag, "@")
	switch {
	case flag == "":
		return nil, nil
	case flag == "-":
		return a.readFile("-")
	case !named:
		return json.RawMessage(flag), nil
	}
	return a.readFile(file)
}
