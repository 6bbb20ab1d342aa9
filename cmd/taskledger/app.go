package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// app is the program. A new one is made for each run.
type app struct {
	getenv func(string) string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer // hides secrets
	log    *slog.Logger

	config  config
	secrets *secrets
	parsed  bool // the command line is: from here on an error is no longer one of usage
}

func newApp() *app {
	return &app{getenv: os.Getenv, secrets: &secrets{}}
}

// Run carries out one command line and returns the exit code. Data goes to stdout, everything
// else to stderr.
func (a *app) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a.stdin, a.stdout, a.stderr = stdin, stdout, &redactor{to: stderr, secrets: a.secrets}
	a.log = slog.New(slog.NewTextHandler(a.stderr, nil))
	root := a.newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if !a.parsed {
		err = usage(err)
	}
	f := describe(err)
	f.print(a.stderr, a.outputFormat(args))
	return f.exit
}

// outputFormat is the format asked for, also where the command line could not be read up to it.
func (a *app) outputFormat(args []string) format {
	if a.parsed {
		return a.config.output
	}
	return guessFormat(args, a.getenv(envOutput))
}

func (a *app) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "taskledger",
		Short: "A ledger of tasks in PostgreSQL, delivered through NATS JetStream",
		Long: `taskledger keeps tasks as events in PostgreSQL, written in your own transactions, and
delivers them to workers through NATS JetStream.

Addresses come from flags, else the environment, else from the servers that
` + "`taskledger serve`" + ` or ` + "`taskledger demo`" + ` runs on this machine.`,
		Example: `  taskledger demo
  taskledger serve
  taskledger enqueue coupon.send order-17 --args '{"percent":10}'
  taskledger task show coupon.send order-17`,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Flags are read before the word behind them is taken for a command.
		TraverseChildren: true,
		Args:             cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.config.read(cmd.Flags(), a.getenv); err != nil {
				return err
			}
			a.parsed = true
			return nil
		},
	}
	root.SetHelpCommand(newHelpCommand())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	a.config.addFlags(root.PersistentFlags())
	root.AddCommand(
		a.newServeCommand(),
		a.newMigrateCommand(),
		a.newEnqueueCommand(),
		a.newImportCommand(),
		a.newTaskCommand(),
		a.newKindCommand(),
		a.newScheduleCommand(),
		a.newAlarmCommand(),
		a.newWorkerCommand(),
		a.newLimitCommand(),
		a.newStatusCommand(),
		a.newVersionCommand(),
		a.newDemoCommand(),
		a.newDemoChildCommand(),
		newExitCodesTopic(),
	)
	return root
}

// newHelpCommand is cobra's, with an error where there is nothing to explain.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("there is no help on %q", strings.Join(args, " ")).hinted("run: taskledger --help")
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// group makes a command that only has subcommands: alone, or with a word it does not know, it is
// used wrongly, where cobra would print its help and be content.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s needs a subcommand", cmd.CommandPath()).hinted("run: %s --help", cmd.CommandPath())
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

func unknownCommand(cmd *cobra.Command, word string) error {
	return usagef("unknown command %q for %q", word, cmd.CommandPath()).hinted("run: %s --help", cmd.CommandPath())
}

// exactArgs is cobra's ExactArgs with an error that shows what is wanted.
func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s takes %d arguments, not %d", cmd.CommandPath(), n, len(args)).
				hinted("usage: %s", cmd.UseLine())
		}
		return nil
	}
}
