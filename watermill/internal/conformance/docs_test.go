package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// around is a program around the code of docs/watermill.md. The parameters are what the document does not declare.
const around = `package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	ledgerwm "github.com/taskledger/taskledger/watermill"
)

func main() {}

func publish(ctx context.Context, tx pgx.Tx, payload []byte) error {
PUBLISH
	return err
}
`

// The block of Go in docs/watermill.md compiles.
func TestCodeOfTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/watermill.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```go\n")[1:]
	if len(blocks) != 1 {
		t.Fatalf("%d blocks: the test has a function for one", len(blocks))
	}
	code, _, _ := strings.Cut(blocks[0], "```\n")
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(strings.Replace(around, "PUBLISH", code, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, output)
	}
}
