package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/taskledger/taskledger/internal/natsconfig"
)

// app is one run of the program.
type app struct {
	getenv func(string) string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer // hides secrets
	log    *slog.Logger

	config   config
	secrets  *secrets
	parsed   bool          // the command line is valid: a later error is not one of usage
	command  string        // the path of the command, with its object, as taskledger pause kind
	database string        // the name of the database, if there is one
	db       *pgxpool.Pool // of that database, when it is open
	natsUser string        // user of package natsconfig, in servers that taskledger runs; operator by default
	isColour bool          // standard output is a terminal that shows colours
	isLoud   bool          // standard error is one
	verbose  bool          // errors have their details
	conns    int           // greatest number of connections to the database; 0: the default of pgxpool
}

func newApp() *app {
	return &app{getenv: os.Getenv, secrets: &secrets{}, natsUser: natsconfig.Operator}
}

// Run executes one command line and returns the exit code. It writes data to stdout, and everything else to
// stderr.
func (a *app) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a.stdin, a.stdout, a.stderr = stdin, stdout, &redactor{to: stderr, secrets: a.secrets}
	a.isColour, a.isLoud = a.hasColour(stdout), a.hasColour(stderr)
	a.log = a.newLogger()
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
	f := a.describe(err)
	f.print(a.stderr, a.outputFormat(args), a.isLoud)
	return f.exit
}

// outputFormat returns the requested format, even if the command line is invalid.
func (a *app) outputFormat(args []string) format {
	if a.parsed {
		return a.config.output
	}
	return guessFormat(args, a.getenv(envOutput))
}

func (a *app) newRootCommand() *cobra.Command {
	var isVersion bool
	root := &cobra.Command{
		Use:   "taskledger",
		Short: "A ledger of tasks in PostgreSQL, given to workers over NATS",
		Long: `taskledger keeps tasks as events in PostgreSQL, written in your own transactions. A dispatcher
gives available tasks to workers over NATS; a relay publishes events on JetStream for subscribers.

Addresses come from flags, else the environment, else from the servers that
` + "`taskledger serve`" + ` or ` + "`taskledger demo`" + ` runs on this machine.`,
		Example: `  taskledger demo
  taskledger serve
  taskledger enqueue coupon.send order-17 --args '{"percent":10}'
  taskledger show task coupon.send order-17`,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Flags are parsed before the word after them is taken for a command.
		TraverseChildren: true,
		Args:             cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return unknownCommand(cmd, args)
			case isVersion:
				v := readVersion()
				return a.print(v, func(w io.Writer) { fmt.Fprintln(w, v) })
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if err := a.config.read(cmd.Flags(), a.getenv); err != nil {
				return err
			}
			a.parsed, a.command, a.log = true, nameOf(cmd, args), a.newLogger()
			return nil
		},
	}
	root.Flags().BoolVar(&isVersion, "version", false, "print the version of this program")
	root.SetHelpCommand(newHelpCommand())
	root.SetUsageTemplate(usageTemplate(root))
	root.SetFlagErrorFunc(wrongFlag)
	a.config.addFlags(root.PersistentFlags())
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false,
		"show the details of an error, and whole texts in tables")
	a.addCommands(root)
	a.addCompletions(root)
	return root
}

// usageTemplate returns cobra's template, in which the help of a command refers to the global flags. Its lines have at
// most 120 columns: pflag lets a line have five more than it is given.
func usageTemplate(root *cobra.Command) string {
	return strings.NewReplacer(
		"Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}",
		"Flags for addresses, output and logs: {{.Root.CommandPath}} --help",
		"{{.LocalFlags.FlagUsages |", "{{.LocalFlags.FlagUsagesWrapped 115 |",
	).Replace(root.UsageTemplate())
}

// newHelpCommand returns cobra's help command, with an error for an unknown topic.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			isObject := len(rest) == 1 && nameOf(found, rest) != found.CommandPath()
			if err != nil || len(rest) > 0 && !isObject {
				return usagef("there is no help on %q", strings.Join(args, " ")).hinted("run: taskledger --help")
			}
			found.InitDefaultHelpFlag()
			found.HelpFunc()(found, args)
			return nil
		},
	}
}

// group turns cmd into a command that only has subcommands. Without a subcommand, or with an unknown one, it returns a
// usage error; cobra would print its help and succeed.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			f := usagef("%s needs a subcommand", cmd.CommandPath()).hinted("run: %s --help", cmd.CommandPath())
			if to := meantOfTasks[cmd.Name()]; to != "" {
				f = f.hinted("for a task: %s", commandLine(cmd.Root(), to, nil))
			}
			return f
		}
		return unknownCommand(cmd, args)
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

// wrongFlag turns the error of a flag of cmd into a usage error. It suggests similar flags if the flag does not exist.
func wrongFlag(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return usage(err)
	}
	if words := cmd.Flags().Args(); !cmd.HasParent() && len(words) > 0 {
		return unknownCommand(cmd, words) // whose flag it may be
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	f := usagef("%s", err)
	if similar := suggestOf(names, missing.GetSpecifiedName()); similar != "" {
		return f.hinted("did you mean --%s? or run: %s --help", strings.ReplaceAll(similar, " or ", " or --"),
			cmd.CommandPath())
	}
	return f.hinted("run: %s --help", cmd.CommandPath())
}

func unknownCommand(cmd *cobra.Command, words []string) error {
	f := usagef("unknown command %q for %q", words[0], cmd.CommandPath())
	if command := meaning(cmd, words); command != "" {
		return f.hinted("did you mean: %s", command)
	}
	if similar := suggest(cmd, words[0]); similar != "" {
		return f.hinted("did you mean %s? or run: %s --help", similar, cmd.CommandPath())
	}
	return f.hinted("run: %s --help", cmd.CommandPath())
}

// exactArgs is cobra's ExactArgs with an error that shows the usage.
func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			noun := "arguments"
			if n == 1 {
				noun = "argument"
			}
			return usagef("%s takes %d %s, not %d", cmd.CommandPath(), n, noun, len(args)).
				hinted("usage: %s", cmd.UseLine())
		}
		return nil
	}
}
