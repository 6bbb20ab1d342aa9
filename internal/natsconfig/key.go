package natsconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"
)

// SeedFile returns the name of a user's file with the seed of its key.
func SeedFile(dir, user string) string { return filepath.Join(dir, user+".nk") }

// Keys are the public keys of users, by name.
type Keys map[string]string

// Credential returns the field of a user with its public key. It is a [Config.Credential].
func (k Keys) Credential(user string) string { return "nkey: " + k[user] }

// VariableCredential returns the field of a user whose public key is in the environment of nats-server. It is a
// [Config.Credential].
func VariableCredential(user string) string { return "nkey: $" + Variable(user) }

// Variable returns the name of the environment variable with a user's public key.
func Variable(user string) string {
	return strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_NKEY"
}

// MakeKeys returns the public keys of the seeds in dir. It creates dir and missing seeds, each in a file with mode
// 0600. It changes no existing seed. made lists the files that it wrote.
func MakeKeys(dir string, users []string) (keys Keys, made []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("keys: %w", err)
	}
	keys = make(Keys)
	for _, user := range users {
		name := SeedFile(dir, user)
		key, isNew, err := makeKey(name)
		if err != nil {
			return nil, made, fmt.Errorf("key of %s: %w", user, err)
		}
		keys[user] = key
		if isNew {
			made = append(made, name)
		}
	}
	return keys, made, nil
}

// makeKey returns the public key of the seed in a file, which it makes if it is missing.
func makeKey(name string) (public string, isNew bool, err error) {
	seed, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return "", false, err
		}
		if seed, err = pair.Seed(); err != nil {
			return "", false, err
		}
		if err := writeNew(name, append(seed, '\n')); err != nil {
			return "", false, err
		}
		isNew = true
	} else if err != nil {
		return "", false, err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil { // the error of nkeys contains no part of the seed
		return "", false, fmt.Errorf("%s is not the seed of a user: %w", name, err)
	}
	public, err = pair.PublicKey()
	return public, isNew, err
}

// writeNew writes a file with mode 0600 that must not exist.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
