package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/migrations"
)

func newMigrateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or upgrade the schema",
		Long: `Create or upgrade the schemas taskledger and taskledger_internal. There is no downgrade. Any number of
processes may migrate at once. Migrating needs a direct connection, not a pooler in transaction mode.`,
	}
	return group(cmd,
		newMigrateUpCommand(a),
		newMigrateRolesCommand(a),
	)
}

func newMigrateUpCommand(a *app) *cobra.Command {
	var isPrinted, dryRun bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that are missing",
		Long: `Apply the migrations that are missing. With --dry-run, list all, applied or not, for which the role
reader suffices. With --print, print all migrations instead, to apply them with a tool of your own; it connects to
nothing.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case isPrinted && dryRun:
				return usagef("--print and --dry-run exclude each other")
			case isPrinted:
				return migrateSQL(a)
			case dryRun:
				return listStatus(cmd.Context(), a)
			}
			return migrateUp(cmd.Context(), a)
		},
	}
	cmd.Flags().BoolVar(&isPrinted, "print", false, "print all migrations and change nothing")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list the migrations, applied or not, and change nothing")
	return cmd
}

// migrateResult is the result of migrate up.
type migrateResult struct {
	Applied []string `json:"applied"` // by this command, in order
	Current string   `json:"current"` // the newest migration
}

func migrateUp(ctx context.Context, a *app) error {
	all, err := listMigrations(ctx, a)
	if err != nil {
		return err
	}
	applied, err := migrations.Apply(ctx, a.config.databaseURL)
	if err != nil {
		return err
	}
	answer := migrateResult{Applied: []string{}, Current: all[len(all)-1].Name}
	answer.Applied = append(answer.Applied, applied...)
	return a.print(answer, func(w io.Writer) {
		for _, name := range answer.Applied {
			fmt.Fprintln(w, "applied", name)
		}
		fmt.Fprintln(w, "the database is at", answer.Current)
	})
}

// listStatus lists the migrations, applied or not.
func listStatus(ctx context.Context, a *app) error {
	all, err := listMigrations(ctx, a)
	if err != nil {
		return err
	}
	list := struct {
		Migrations []migrations.Status `json:"migrations"`
	}{all}
	return printList(a, list, all, func(w io.Writer) {
		t := newTable([]any{"migration", "applied"})
		for _, m := range all {
			when := "no"
			if m.Applied {
				when = ago(m.AppliedAt)
			}
			t.AppendRow(table.Row{m.Name, when})
		}
		renderTable(w, t)
	})
}

func newMigrateRolesCommand(a *app) *cobra.Command {
	var prefix string
	var workers []string
	var isPrinted bool
	cmd := &cobra.Command{
		Use:   "roles",
		Short: "Make the roles of producers, workers, services, operators and readers, with their rights",
		Long: `Make the roles producer, worker, relay, operator, reader, archiver, subscriber and api, each with the
rights of its job and no others. All databases of a server share roles, so their names begin with the database's name:
shop_producer, or taskledger_producer on the server of taskledger serve. They cannot log in: grant them to roles that
can. Run the command again after each upgrade.

The flag --worker makes a role for workers that are limited to kinds: --worker mails=coupon.send,mail.* is the role
shop_worker_mails, for the kind coupon.send and kinds that begin with "mail.". Later calls keep it and its kinds.

It needs the owner of the schema taskledger, and CREATEROLE for roles that do not exist. Two ways work for an owner
without CREATEROLE: an administrator that is a member of the owner runs the command, or executes what --print prints. Or
an administrator executes the statements create role, which the error lists, and the owner then runs the command.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			limited := make([]migrations.LimitedWorker, len(workers))
			for i, text := range workers {
				var err error
				if limited[i], err = migrations.ParseLimitedWorker(text); err != nil {
					return usage(err)
				}
			}
			return migrateRoles(cmd.Context(), a, prefix, limited, isPrinted)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "begin the names with this (default: name of the database)")
	cmd.Flags().StringArrayVar(&workers, "worker", nil, "make a role of workers of these kinds: NAME=KIND,KIND,…")
	cmd.Flags().BoolVar(&isPrinted, "print", false, "print the statements and change nothing; needs --prefix")
	return cmd
}

func migrateRoles(
	ctx context.Context, a *app, prefix string, limited []migrations.LimitedWorker, isPrinted bool,
) error {
	if isPrinted && prefix == "" {
		return usagef("--print needs --prefix").
			hinted("the prefix is the name of the database: --prefix shop (of serve's own server: --prefix taskledger)")
	}
	if isPrinted {
		script, err := migrations.RolesSQL(prefix, limited...)
		if err != nil {
			return err
		}
		answer := struct {
			SQL string `json:"sql"`
		}{script}
		return a.print(answer, func(w io.Writer) { fmt.Fprint(w, script) })
	}
	if _, err := listMigrations(ctx, a); err != nil {
		return err
	}
	names, err := migrations.MakeRoles(ctx, a.config.databaseURL, prefix, limited...)
	if err != nil {
		return err
	}
	answer := struct {
		Roles []string `json:"roles"`
	}{names}
	return a.print(answer, func(w io.Writer) {
		for _, name := range names {
			fmt.Fprintln(w, name)
		}
	})
}

func migrateSQL(a *app) error {
	script, err := migrations.SQL()
	if err != nil {
		return err
	}
	answer := struct {
		SQL string `json:"sql"`
	}{script}
	return a.print(answer, func(w io.Writer) { fmt.Fprint(w, script) })
}

// listMigrations first checks the connection, so that it returns the same error as every other command.
func listMigrations(ctx context.Context, a *app) ([]migrations.Status, error) {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return nil, err
	}
	pool.Close()
	return migrations.List(ctx, a.config.databaseURL)
}
