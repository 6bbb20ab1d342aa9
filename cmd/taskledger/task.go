package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

// keyArgs parses a key as KIND BIZ_ID, or as KIND/BIZ_ID in one word.
func keyArgs(cmd *cobra.Command, args []string) error {
	_, err := parseKey(args)
	if err != nil {
		return usagef("%s", err).hinted("usage: %s", cmd.UseLine())
	}
	return nil
}

func parseKey(args []string) (ledger.Key, error) {
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2) // a kind contains no slash
	}
	if len(args) != 2 {
		return ledger.Key{}, usagef("name a task as KIND BIZ_ID, or as KIND/BIZ_ID")
	}
	key := ledger.Key{Kind: ledger.Kind(args[0]), BizID: ledger.BizID(args[1])}
	return key, key.ValidateStored() // a stored key may be invalid: the owner of the schema has inserted it
}
