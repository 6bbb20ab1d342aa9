package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/seal"
)

// madeSealKey is the result of create seal-key as JSON.
type madeSealKey struct {
	PublicKey string `json:"public_key"`
	Origin    string `json:"origin"` // of the checkpoints that the key signs
	File      string `json:"file"`   // the secret key
}

func newCreateSealKeyCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "seal-key FILE",
		Short: "Make a key that signs checkpoints, and print its public part",
		Long: `Make an Ed25519 key that signs the checkpoints of this ledger, write the secret part into FILE, which
must not exist, and print the public part: a line for auditors and witnesses. The secret part is stored nowhere else.

A log that begins again needs a key with another name: after the restore of an older backup, the witnesses do not
accept its tree under the name that they know.`,
		Example: "  taskledger create seal-key /etc/taskledger/seal.key\n" +
			"  taskledger create seal-key /etc/taskledger/seal-2.key --name after-restore",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return createSealKey(ctx, a, pool, args[0], name)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`name` of the log, after the ledger's (default: the ledger's alone)")
	refuseZero(cmd.Flags(), "name")
	return cmd
}

func createSealKey(ctx context.Context, a *app, pool *pgxpool.Pool, file, name string) error {
	newest, err := seal.Newest(ctx, pool)
	if err != nil {
		return err
	}
	origin := newest.Origin
	if name != "" {
		origin += "/" + name
	}
	secret, public, err := seal.NewKey(origin)
	if err != nil {
		return err
	}
	if err := writeNew(file, secret+"\n"); err != nil {
		return err
	}
	return a.print(madeSealKey{PublicKey: public, Origin: origin, File: file}, func(w io.Writer) {
		fmt.Fprintf(a.stderr, "made a key of %s: its secret part is in %s\n", plain(origin), plain(file))
		fmt.Fprintln(w, public)
	})
}

// writeNew writes a secret into a file that must not exist.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return failf(exitConflict, "%s exists: a key is never overwritten", name).hinted("choose another file")
	}
	if err != nil {
		return usagef("%s", err)
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Sync(), f.Close())
}
