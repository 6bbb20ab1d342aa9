package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/bucket"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/services"
)

// addSealFlag adds --seal, the file with the key, the receivers and the witnesses of checkpoints.
func addSealFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "seal", "",
		"seal the events, and publish checkpoints as this `file` states: docs/audit.md (default: no seal)")
	bind(cmd.Flags(), "seal", "TASKLEDGER_SEAL")
}

// readSealFile reads the file of --seal, and returns it as JSON too: nil if file is "".
func readSealFile(a *app, file string) (f sealer.File, text []byte, err error) {
	if file == "" {
		return f, nil, nil // nothing is sealed
	}
	if text, err = a.readJSON(file); err != nil {
		return f, nil, err
	}
	f, err = sealer.Parse(text)
	return f, text, err
}

// openObjects opens a place in an object store.
func (a *app) openObjects(place string) (seal.Objects, error) { return bucket.Open(place, a.getenv) }

// openStore is openObjects for package services.
func (a *app) openStore(place string) (services.Objects, error) { return bucket.Open(place, a.getenv) }

// publishSeal publishes the newest checkpoint once.
func publishSeal(ctx context.Context, a *app, pool *pgxpool.Pool, file sealer.File) error {
	c := sealer.Config{DB: pool, File: file, Logger: a.log, Describe: a.explain, Open: a.openObjects}
	if file.Subject != "" {
		nc, err := a.connectNATS(false)
		if err != nil {
			return err
		}
		defer nc.Close()
		c.Publish = natsclient.CheckpointPublisher(nc)
	}
	return sealer.Publish(ctx, c)
}

// checkSealer returns an error if the login may not seal.
func checkSealer(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	err := seal.CheckRole(ctx, pool)
	if err == nil {
		return nil
	}
	f := a.describe(err)
	if f.isRefused {
		f.isRefused = false // its cure would be the role of serve alone
		f.hint = "serve --seal needs the roles relay and archiver: grant archiver to the login of serve"
	}
	return f
}
