package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// around is a program around the code of docs/watermill.md: its declarations, then its statements, a function for each
// block. The parameters are what the document does not declare.
const around = `package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
	ledgerwm "github.com/taskledger/taskledger/watermill"
)

func main() {}

func report(context.Context, ledger.Key, json.RawMessage) error { return nil }

DECLARATIONS

func publish(ctx context.Context, tx pgx.Tx, payload []byte) error {
PUBLISH
	return err
}

func process(router *message.Router, nc *nats.Conn) error {
PROCESS
	return err
}
`

// The blocks of Go in docs/watermill.md compile.
func TestCodeOfTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/watermill.md")
	if err != nil {
		t.Fatal(err)
	}
	var declarations []string
	var functions []string
	for _, block := range strings.Split(string(text), "```go\n")[1:] {
		code, _, _ := strings.Cut(block, "```\n")
		var statements []string
		for _, part := range strings.Split(strings.TrimSpace(code), "\n\n") {
			if strings.HasPrefix(part, "type ") || strings.HasPrefix(part, "func ") {
				declarations = append(declarations, part)
			} else {
				statements = append(statements, part)
			}
		}
		functions = append(functions, strings.Join(statements, "\n"))
	}
	if len(functions) != 2 || len(declarations) == 0 {
		t.Fatalf("%d blocks, %d declarations: the test has a function for each of 2 blocks", len(functions),
			len(declarations))
	}
	program := strings.NewReplacer("DECLARATIONS", strings.Join(declarations, "\n\n"), "PUBLISH", functions[0],
		"PROCESS", functions[1]).Replace(around)
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, output)
	}
}
