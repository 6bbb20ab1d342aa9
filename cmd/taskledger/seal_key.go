package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/seal"
)

// madeSealKey is the result of seal --make-key as JSON.
type madeSealKey struct {
	PublicKey string `json:"public_key"`
	Origin    string `json:"origin"` // of the checkpoints that the key signs
	File      string `json:"file"`   // the secret key
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
