package sealer

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// commandTimeout is the timeout of a signer command.
const commandTimeout = 10 * time.Second

// runCommand returns the signature of a text by KeyCommand. It uses no shell.
func (f File) runCommand(text []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.KeyCommand[0], f.KeyCommand[1:]...)
	cmd.Stdin = bytes.NewReader(text)
	cmd.WaitDelay = time.Second // children may hold the pipes open
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("key_command %s: %w", f.KeyCommand[0], err)
	}
	signature, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(output)), ""))
	if err != nil {
		return nil, fmt.Errorf("key_command %s must write the signature in base64: %w", f.KeyCommand[0], err)
	}
	return signature, nil
}
